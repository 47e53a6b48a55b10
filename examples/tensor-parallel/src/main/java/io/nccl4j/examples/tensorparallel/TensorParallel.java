package io.nccl4j.examples.tensorparallel;

import com.github.tjake.jlama.model.AbstractModel;
import com.github.tjake.jlama.model.AbstractModel.InferenceType;
import com.github.tjake.jlama.model.DistributedContext;
import com.github.tjake.jlama.model.ModelSupport;
import com.github.tjake.jlama.safetensors.Config;
import com.github.tjake.jlama.safetensors.DType;
import com.github.tjake.jlama.safetensors.SafeTensorSupport;
import com.github.tjake.jlama.safetensors.prompt.PromptContext;
import com.github.tjake.jlama.tensor.AbstractTensor;
import com.github.tjake.jlama.tensor.KvBufferCache;
import com.github.tjake.jlama.tensor.KvBufferCache.KvBuffer;
import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.rendezvous.LaunchEnvironment;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;

/**
 * Continues a prompt with a Llama model whose attention heads and hidden units are divided among
 * ranks.
 */
@SuppressWarnings("rawtypes") // Jlama's own use of its tensors.
public final class TensorParallel {
  private static final String PROMPT = "Once upon a time";
  private static final int TOKENS = 32;

  private TensorParallel() {}

  /**
   * Runs the rank set by a launcher, else one rank.
   *
   * @param args the folder of a Llama model in the format of Hugging Face (default: a random model)
   */
  public static void main(String[] args) throws IOException {
    Path folder = args.length == 0 ? RandomModel.write() : Path.of(args[0]);
    // Jlama computes on processors: its tensors are in host memory, as the reference's buffers are.
    try (Backend backend = Backend.reference(1)) {
      LaunchEnvironment.current()
          .runRanks(
              backend,
              comm -> {
                String text = continuation(folder, comm);
                if (comm.rank() == 0) {
                  System.out.println(PROMPT + text);
                }
              });
    }
  }

  /** Returns the same text on every rank. */
  static String continuation(Path folder, Communicator comm) {
    try (AbstractModel model = load(folder, comm);
        Stream stream = comm.newStream();
        KvBuffer cache = new KvBufferCache(model).getEphemeralKvBuffer();
        AbstractTensor logits = model.makeDenseTensor(model.getConfig().vocabularySize)) {
      Optional<Consumer<List<AbstractTensor>>> reducer =
          Optional.of(tensors -> tensors.forEach(tensor -> sum(tensor, comm, stream)));
      int[] prompt = model.encodePrompt(PromptContext.of(PROMPT));
      int token = next(model, model.batchForward(prompt, 0, cache, reducer), logits);
      StringBuilder text = new StringBuilder(model.getTokenizer().decode(token));
      for (int i = 1; i < TOKENS && !model.getConfig().eosTokens.contains(token); i++) {
        int position = prompt.length + i - 1;
        token = next(model, model.forward(token, position, cache, reducer), logits);
        text.append(model.getTokenizer().decode(token));
      }
      return text.toString();
    }
  }

  /** Returns the most probable token, and closes what it follows from. */
  private static int next(AbstractModel model, AbstractTensor output, AbstractTensor logits) {
    try (output) {
      return model.sample(output.slice(output.shape().first() - 1), 0, 0, logits);
    }
  }

  /** Loads this rank's part of every layer. */
  private static AbstractModel load(Path folder, Communicator comm) {
    int processors = Runtime.getRuntime().availableProcessors();
    return ModelSupport.loadModel(
        InferenceType.FULL_GENERATION,
        folder.toFile(),
        null,
        DType.F32,
        DType.F32,
        Optional.empty(),
        Optional.of(Math.max(1, processors / comm.size())),
        Optional.of(config -> part(config, comm)),
        SafeTensorSupport::loadWeights);
  }

  private static DistributedContext part(Config config, Communicator comm) {
    if (config.numberOfKeyValueHeads % comm.size() != 0) {
      throw new IllegalArgumentException(
          "there are %d ranks; their number must divide the model's %d key-value heads"
              .formatted(comm.size(), config.numberOfKeyValueHeads));
    }
    return DistributedContext.builder(config)
        .setModelShard(comm.rank())
        .setNumModelShards(comm.size())
        .build();
  }

  /** Adds up the ranks' parts of a tensor, in the tensor's own memory. */
  private static void sum(AbstractTensor tensor, Communicator comm, Stream stream) {
    try (Buffer buffer = buffer(tensor)) {
      comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
      stream.synchronize();
    }
  }

  static Buffer buffer(AbstractTensor tensor) {
    return Buffer.ofHostSegment(tensor.getMemorySegment(), DataType.FLOAT32, tensor.size());
  }
}
