package io.nccl4j.rendezvous;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.PortRange;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.Optional;

/** Where the ranks of a launch exchange the id; chosen from the environment, opened later. */
sealed interface RendezvousEndpoint {
  /** The variable that overrides what the launcher implies. */
  String VARIABLE = "NCCL4J_RENDEZVOUS";

  String CHOICES =
      "set "
          + VARIABLE
          + "=tcp://HOST:PORT with rank 0's host and a free port there (and "
          + Secret.FILE_VARIABLE
          + "), or "
          + VARIABLE
          + "=file:/DIRECTORY with a directory that all ranks can access";

  /** Creates this rank's rendezvous. */
  Rendezvous open(RankInfo rankInfo);

  /** None: there is one rank. */
  record Alone() implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo rankInfo) {
      return RankRendezvous.alone(rankInfo);
    }

    @Override
    public String toString() {
      return "this process alone";
    }
  }

  /** A directory set in {@link #VARIABLE}. */
  record Directory(Path path) implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo rankInfo) {
      return Rendezvous.files(path, rankInfo);
    }

    @Override
    public String toString() {
      return "files in " + path;
    }
  }

  /** The user's private directory, when all ranks are on one host. */
  record OneHost(Path temporary) implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo rankInfo) {
      return Rendezvous.files(PrivateDirectory.under(temporary), rankInfo);
    }

    @Override
    public String toString() {
      return "files in a private directory under " + temporary;
    }
  }

  /** A port on rank 0's host. */
  record Port(String host, int port, LaunchVariables variables) implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo rankInfo) {
      Optional<Secret> secret = Secret.from(variables.environment());
      if (secret.isPresent()) {
        return Rendezvous.tcp(host, port, secret.get(), rankInfo);
      }
      if (!RankRendezvous.isLoopback(host)) {
        throw new IllegalArgumentException(
            "neither "
                + Secret.FILE_VARIABLE
                + " nor "
                + Secret.VARIABLE
                + " is set, but the rendezvous at "
                + host
                + ":"
                + port
                + " is on a network and needs a secret. Give all ranks the same random text in a"
                + " file, such as the output of 'openssl rand -hex 32'");
      }
      return Rendezvous.loopback(port, rankInfo);
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
    public Rendezvous open(RankInfo rankInfo) {
      Optional<Secret> secret = Secret.from(variables.environment());
      return Rendezvous.torchStore(host, port, secret, rankInfo);
    }

    @Override
    public String toString() {
      return "the store of torchrun's agent at " + host + ":" + port;
    }
  }

  /** The environment does not determine an endpoint. */
  record Unknown(String reason, String remedy) implements RendezvousEndpoint {
    @Override
    public Rendezvous open(RankInfo rankInfo) {
      throw new IllegalArgumentException(reason + "; " + remedy);
    }

    @Override
    public String toString() {
      return "unknown (" + reason + ")";
    }
  }

  /** Returns the endpoint set in {@link #VARIABLE}, else the one that the launcher implies. */
  static RendezvousEndpoint of(
      ProcessRank processRank, String jobId, LaunchVariables variables, Path temporary) {
    // Read here, so that a bad value is refused under every launcher.
    Optional<PortRange> ports =
        variables.text(PortRange.VARIABLE).flatMap(text -> PortRange.of(PortRange.VARIABLE, text));
    if (variables.has(VARIABLE)) {
      return parse(variables.text(VARIABLE).orElse(""), variables);
    }
    if (processRank.size() == 1) {
      return new Alone();
    }
    Optional<RendezvousEndpoint> master = master(processRank, variables);
    if (master.isPresent()) {
      return master.get();
    }
    boolean separatedByJobId = processRank.onOneHost() && !jobId.isEmpty();
    return separatedByJobId
        ? new OneHost(temporary)
        : acrossHosts(processRank, jobId, variables, ports);
  }

  private static Optional<RendezvousEndpoint> master(
      ProcessRank processRank, LaunchVariables variables) {
    boolean agentHasPort =
        processRank.launcher() == Launcher.TORCHRUN
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
      ProcessRank processRank, String jobId, LaunchVariables variables, Optional<PortRange> ports) {
    if (processRank.launcher() == Launcher.SLURM && !jobId.isEmpty()) {
      Optional<String> first = Slurm.firstNode(variables);
      if (first.isPresent()) {
        return new Port(first.get(), Slurm.port(jobId, ports), variables);
      }
    }
    return new Unknown(
        "nothing from "
            + processRank.launcher()
            + " says where the "
            + processRank.size()
            + " ranks exchange the id",
        CHOICES + ", or MASTER_ADDR and MASTER_PORT with rank 0's host and a free port there");
  }

  /** Decodes the path of a URI; a path without URI escapes is returned as is. */
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
          VARIABLE + " is 'file:" + path + "', which is not a URI; write a literal % as %25", e);
    }
    throw new IllegalArgumentException(
        VARIABLE + " is 'file:" + path + "'; write ? as %3F and # as %23");
  }

  private static RendezvousEndpoint parse(String value, LaunchVariables variables) {
    if (value.startsWith("file:")) {
      String path = value.substring("file:".length());
      path = decoded(path.startsWith("//") ? path.substring(2) : path);
      if (path.startsWith("/") && path.indexOf('\0') < 0) {
        return new Directory(Arguments.path(path, VARIABLE));
      }
    }
    if (value.startsWith("tcp://")) {
      String address = value.substring("tcp://".length());
      int colon = address.lastIndexOf(':');
      if (colon > 0 && address.indexOf('/') < 0) {
        String host = address.substring(0, colon);
        boolean literal = host.startsWith("[") && host.endsWith("]");
        host = literal ? host.substring(1, host.length() - 1) : host;
        // Without brackets around it, an IPv6 address has no end.
        if (host.matches(literal ? ".+" : "[^:\\[\\]]+")) {
          return new Port(
              host, LaunchVariables.port(address.substring(colon + 1), VARIABLE), variables);
        }
      }
    }
    throw new IllegalArgumentException(
        VARIABLE
            + " is '"
            + value
            + "'; it must be file:/DIRECTORY (absolute) or tcp://HOST:PORT, with"
            + " an IPv6 address in brackets");
  }
}
