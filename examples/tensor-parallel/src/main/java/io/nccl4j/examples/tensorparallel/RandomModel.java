package io.nccl4j.examples.tensorparallel;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * A small Llama model with random weights, the same in every process, in the files of a real one.
 */
final class RandomModel {
  static final int LAYERS = 4;
  private static final int HEADS = 8;
  private static final int KEY_VALUE_HEADS = 4;
  private static final int HEAD_SIZE = 32;
  private static final int EMBEDDING = HEADS * HEAD_SIZE;
  private static final int HIDDEN = 512;
  private static final String LETTERS =
      " ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  private static final int VOCABULARY = LETTERS.length() + 1; // and the begin of a text
  private static final long SEED = 1;

  private RandomModel() {}

  /** Returns a temporary folder with the model, which is deleted when the process ends. */
  static Path write() throws IOException {
    Path folder = Files.createTempDirectory("random-llama-");
    folder.toFile().deleteOnExit();
    ObjectMapper json = new ObjectMapper();
    write(folder.resolve("config.json"), json.writeValueAsBytes(config()));
    write(folder.resolve("tokenizer.json"), json.writeValueAsBytes(tokenizer()));
    write(folder.resolve("model.safetensors"), safetensors(json));
    return folder;
  }

  private static void write(Path file, byte[] content) throws IOException {
    Files.write(file, content).toFile().deleteOnExit();
  }

  private static Map<String, Object> config() {
    return Map.ofEntries(
        Map.entry("model_type", "llama"),
        Map.entry("hidden_act", "silu"),
        Map.entry("hidden_size", EMBEDDING),
        Map.entry("intermediate_size", HIDDEN),
        Map.entry("num_attention_heads", HEADS),
        Map.entry("num_key_value_heads", KEY_VALUE_HEADS),
        Map.entry("num_hidden_layers", LAYERS),
        Map.entry("rms_norm_eps", 1e-5),
        Map.entry("max_position_embeddings", 512),
        Map.entry("vocab_size", VOCABULARY),
        Map.entry("bos_token_id", 0),
        Map.entry("eos_token_id", VOCABULARY));
  }

  private static Map<String, Object> tokenizer() {
    Map<String, Integer> vocabulary =
        IntStream.range(1, VOCABULARY)
            .boxed()
            .collect(Collectors.toMap(id -> LETTERS.substring(id - 1, id), id -> id));
    vocabulary.put("<s>", 0);
    return Map.of("model", Map.of("type", "BPE", "vocab", vocabulary));
  }

  /** The number of elements in each dimension of each tensor. */
  private static Map<String, int[]> shapes() {
    Map<String, int[]> shapes = new LinkedHashMap<>();
    shapes.put("model.embed_tokens.weight", new int[] {VOCABULARY, EMBEDDING});
    for (int i = 0; i < LAYERS; i++) {
      String layer = "model.layers." + i + ".";
      shapes.put(layer + "input_layernorm.weight", new int[] {EMBEDDING});
      shapes.put(layer + "self_attn.q_proj.weight", new int[] {EMBEDDING, EMBEDDING});
      int keyValues = KEY_VALUE_HEADS * HEAD_SIZE;
      shapes.put(layer + "self_attn.k_proj.weight", new int[] {keyValues, EMBEDDING});
      shapes.put(layer + "self_attn.v_proj.weight", new int[] {keyValues, EMBEDDING});
      shapes.put(layer + "self_attn.o_proj.weight", new int[] {EMBEDDING, EMBEDDING});
      shapes.put(layer + "post_attention_layernorm.weight", new int[] {EMBEDDING});
      shapes.put(layer + "mlp.gate_proj.weight", new int[] {HIDDEN, EMBEDDING});
      shapes.put(layer + "mlp.up_proj.weight", new int[] {HIDDEN, EMBEDDING});
      shapes.put(layer + "mlp.down_proj.weight", new int[] {EMBEDDING, HIDDEN});
    }
    shapes.put("model.norm.weight", new int[] {EMBEDDING});
    shapes.put("lm_head.weight", new int[] {VOCABULARY, EMBEDDING});
    return shapes;
  }

  private static int elements(int[] shape) {
    return IntStream.of(shape).reduce(1, (a, b) -> a * b);
  }

  /** The length of the header; the header, which says where each tensor is; the tensors. */
  private static byte[] safetensors(ObjectMapper json) throws IOException {
    Map<String, Object> header = new LinkedHashMap<>();
    int end = 0;
    for (Map.Entry<String, int[]> tensor : shapes().entrySet()) {
      int begin = end;
      end += Float.BYTES * elements(tensor.getValue());
      int[] place = {begin, end};
      header.put(
          tensor.getKey(),
          Map.of("dtype", "F32", "shape", tensor.getValue(), "data_offsets", place));
    }
    byte[] text = json.writeValueAsBytes(header);
    byte[] padding = " ".repeat(-text.length & 7).getBytes(StandardCharsets.US_ASCII);
    ByteBuffer file =
        ByteBuffer.allocate(Long.BYTES + text.length + padding.length + end)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putLong(text.length + padding.length)
            .put(text)
            .put(padding);
    Random random = new Random(SEED);
    for (int[] shape : shapes().values()) {
      for (int i = 0; i < elements(shape); i++) {
        // The weights of a norm are 1; the others are large enough that the text has variety.
        file.putFloat(
            shape.length == 1 ? 1 : (float) (2 * random.nextGaussian() / Math.sqrt(shape[1])));
      }
    }
    return file.array();
  }
}
