package io.nccl4j.examples.launch;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.snakeyaml.engine.v2.api.Load;
import org.snakeyaml.engine.v2.api.LoadSettings;

/** The parsed manifest of the indexed job: a service and a job. */
record IndexedJob(Map<?, ?> service, Map<?, ?> job) {
  static IndexedJob read() throws IOException {
    String text = Files.readString(Path.of("kubernetes-indexed-job.yaml"));
    Map<Object, Map<?, ?>> kinds = new HashMap<>();
    for (Object each : new Load(LoadSettings.builder().build()).loadAllFromString(text)) {
      Map<?, ?> document = (Map<?, ?>) each;
      kinds.put(document.get("kind"), document);
    }
    return new IndexedJob(kinds.get("Service"), kinds.get("Job"));
  }

  /** Returns the value at a path of keys and list indices. */
  static Object at(Map<?, ?> document, Object... path) {
    Object found = document;
    for (Object step : path) {
      found = found instanceof List<?> list ? list.get((int) step) : ((Map<?, ?>) found).get(step);
    }
    return found;
  }

  Object container(Object... path) {
    Map<?, ?> container = (Map<?, ?>) at(job, "spec", "template", "spec", "containers", 0);
    return at(container, path);
  }

  /** Returns the variables of each pod, except its index, with the secret in another file. */
  Map<String, String> environment(String secretFile) {
    Map<String, String> variables = new HashMap<>();
    for (Object each : (List<?>) container("env")) {
      Map<?, ?> variable = (Map<?, ?>) each;
      variables.put((String) variable.get("name"), (String) variable.get("value"));
    }
    variables.replace("NCCL4J_SECRET_FILE", secretFile);
    return variables;
  }
}
