package io.nccl4j.rendezvous;

import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.Optional;

/** Where the ranks of a launch meet; chosen from the environment, opened later. */
sealed interface RendezvousEndpoint {
  /** The variable that overrules what the launcher implies. */
  String VARIABLE = "NCCL4J_RENDEZVOUS";

  String CHOICES =
      "set "
          + VARIABLE
          + "=tcp://HOST:PORT with rank 0's host and a free port of it (and "
          + Secret.VARIABLE
          + "), or "
          + VARIABLE
          + "=file:/DIRECTORY with a directory that all ranks see";

  /** Returns this rank's place there. */
  Rendezvous open(RankInfo member);

  /** Nowhere: there is one rank. */
  record Alone() implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo member) {
      return InProcessRendezvous.of(1, member.timeout()).getFirst();
    }

    @Override
    public String toString() {
      return "this process alone";
    }
  }

  /** A directory that was named. */
  record Directory(Path path) implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo member) {
      return FileRendezvous.in(path, member);
    }

    @Override
    public String toString() {
      return "files in " + path;
    }
  }

  /** The user's own directory of the one host that all ranks are on. */
  record OneHost(Path temporary) implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo member) {
      return FileRendezvous.in(PrivateDirectory.under(temporary), member);
    }

    @Override
    public String toString() {
      return "files in a private directory under " + temporary;
    }
  }

  /** A port of rank 0's host. */
  record Port(String host, int port, LaunchVariables variables) implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo member) {
      Optional<Secret> secret = Secret.from(variables.environment());
      if (secret.isPresent()) {
        return TcpRendezvous.at(host, port, secret.get(), member);
      }
      if (!TcpRendezvous.isLoopback(host)) {
        throw new IllegalArgumentException(
            Secret.VARIABLE
                + " is not set, and the ranks meet at "
                + host
                + ":"
                + port
                + "; over a network they need a secret. Set the same random text on all ranks,"
                + " such as the output of 'openssl rand -hex 32'");
      }
      return TcpRendezvous.onLoopback(port, member);
    }

    @Override
    public String toString() {
      return "rank 0 at " + host + ":" + port;
    }
  }

  /** The store of torchrun's agent. */
  record AgentStore(String host, int port, LaunchVariables variables)
      implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo member) {
      Optional<Secret> secret = Secret.from(variables.environment());
      return TorchStoreRendezvous.at(host, port, secret, member);
    }

    @Override
    public String toString() {
      return "the store of torchrun's agent at " + host + ":" + port;
    }
  }

  /** Nothing that the environment tells. */
  record Unknown(String reason, String remedy) implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo member) {
      throw new IllegalArgumentException(reason + "; " + remedy);
    }

    @Override
    public String toString() {
      return "unknown (" + reason + ")";
    }
  }

  /** Returns what was named, else what the launcher implies. */
  static RendezvousEndpoint of(
      ProcessRank placement, String run, LaunchVariables variables, Path temporary) {
    if (variables.has(VARIABLE)) {
      return parse(variables.text(VARIABLE).orElse(""), variables);
    }
    if (placement.size() == 1) {
      return new Alone();
    }
    Optional<RendezvousEndpoint> master = master(placement, variables);
    if (master.isPresent()) {
      return master.get();
    }
    boolean keptByRun = placement.onOneHost() && !run.isEmpty();
    return keptByRun ? new OneHost(temporary) : acrossHosts(placement, run, variables);
  }

  private static Optional<RendezvousEndpoint> master(
      ProcessRank placement, LaunchVariables variables) {
    boolean agentHasPort =
        placement.launcher() == Launcher.TORCHRUN
            && variables.text("TORCHELASTIC_USE_AGENT_STORE").orElse("").equalsIgnoreCase("true");
    Optional<String> address = variables.text("MASTER_ADDR");
    Optional<String> port = variables.text("MASTER_PORT");
    if (address.isPresent() != port.isPresent()) {
      throw new IllegalArgumentException(
          address.isPresent()
              ? "MASTER_ADDR is '" + address.get() + "', but MASTER_PORT is not set"
              : "MASTER_PORT is '" + port.get() + "', but MASTER_ADDR is not set");
    }
    if (agentHasPort && address.isEmpty()) {
      throw new IllegalArgumentException(
          "TORCHELASTIC_USE_AGENT_STORE is true, but MASTER_ADDR and MASTER_PORT are not set;"
              + " torchrun sets all three");
    }
    return address.map(
        host -> {
          int number = LaunchVariables.port(port.get(), "MASTER_PORT");
          return agentHasPort
              ? new AgentStore(host.strip(), number, variables)
              : new Port(host.strip(), number, variables);
        });
  }

  private static RendezvousEndpoint acrossHosts(
      ProcessRank placement, String run, LaunchVariables variables) {
    if (placement.launcher() == Launcher.SLURM && !run.isEmpty()) {
      Optional<String> first = Slurm.firstNode(variables);
      if (first.isPresent()) {
        return new Port(first.get(), Slurm.port(run), variables);
      }
    }
    return new Unknown(
        "nothing from "
            + placement.launcher()
            + " says where the "
            + placement.size()
            + " ranks can meet",
        CHOICES + ", or MASTER_ADDR and MASTER_PORT with rank 0's host and a free port of it");
  }

  /** Takes a path as a URI has it, or as it is where it has none of a URI's escapes. */
  private static String decoded(String path) {
    if (path.indexOf('%') < 0) {
      return path;
    }
    try {
      URI uri = new URI("file:" + path);
      if (uri.getRawQuery() == null && uri.getRawFragment() == null && uri.getPath() != null) {
        return uri.getPath();
      }
    } catch (URISyntaxException e) {
      throw new IllegalArgumentException(
          VARIABLE + " is 'file:" + path + "', which is no URI; a % itself is %25 in one", e);
    }
    throw new IllegalArgumentException(
        VARIABLE + " is 'file:" + path + "'; in a URI, ? is %3F and # is %23");
  }

  private static RendezvousEndpoint parse(String value, LaunchVariables variables) {
    if (value.startsWith("file:")) {
      String path = value.substring("file:".length());
      path = decoded(path.startsWith("//") ? path.substring(2) : path);
      if (path.startsWith("/") && path.indexOf('\0') < 0) {
        return new Directory(Path.of(path));
      }
    }
    if (value.startsWith("tcp://")) {
      String place = value.substring("tcp://".length());
      int colon = place.lastIndexOf(':');
      if (colon > 0 && place.indexOf('/') < 0) {
        String host = place.substring(0, colon);
        boolean literal = host.startsWith("[") && host.endsWith("]");
        host = literal ? host.substring(1, host.length() - 1) : host;
        return new Port(
            host, LaunchVariables.port(place.substring(colon + 1), VARIABLE), variables);
      }
    }
    throw new IllegalArgumentException(
        VARIABLE + " is '" + value + "'; it must be file:/DIRECTORY (absolute) or tcp://HOST:PORT");
  }
}
