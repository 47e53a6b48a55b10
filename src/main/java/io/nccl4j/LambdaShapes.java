package io.nccl4j;

import java.lang.invoke.MethodHandles;
import java.lang.reflect.Constructor;

/**
 * The kinds and the order of the values that the library's lambda expressions capture, one
 * constructor for each.
 *
 * <p>The JDK makes code that allocates a lambda once for each such shape, when the first one is
 * linked. If the stack overflows meanwhile, the JDK fails that lambda expression for the life of
 * the process. Shapes that are not here come with the JDK: up to three references, or one {@code
 * int}.
 */
final class LambdaShapes {
  LambdaShapes(long a) {}

  LambdaShapes(int a, Object b) {}

  LambdaShapes(long a, Object b) {}

  LambdaShapes(Object a, int b) {}

  LambdaShapes(Object a, long b) {}

  LambdaShapes(int a, Object b, Object c) {}

  LambdaShapes(Object a, int b, int c) {}

  LambdaShapes(Object a, int b, long c) {}

  LambdaShapes(Object a, int b, Object c) {}

  LambdaShapes(Object a, Object b, int c) {}

  LambdaShapes(Object a, int b, Object c, Object d) {}

  LambdaShapes(Object a, Object b, int c, int d) {}

  LambdaShapes(Object a, Object b, int c, long d) {}

  LambdaShapes(Object a, Object b, long c, Object d) {}

  LambdaShapes(Object a, Object b, Object c, int d) {}

  LambdaShapes(Object a, Object b, Object c, Object d) {}

  LambdaShapes(Object a, Object b, Object c, int d, Object e) {}

  LambdaShapes(Object a, Object b, Object c, long d, int e) {}

  LambdaShapes(Object a, Object b, Object c, Object d, int e) {}

  LambdaShapes(Object a, Object b, Object c, Object d, Object e) {}

  LambdaShapes(Object a, Object b, Object c, Object d, Object e, int f) {}

  LambdaShapes(Object a, Object b, Object c, Object d, long e, Object f, int g, long h) {}

  LambdaShapes(Object a, Object b, Object c, Object d, long e, Object f, int g, Object h) {}

  /** Has the JDK make the code for all shapes. */
  static void link() throws IllegalAccessException {
    for (Constructor<?> shape : LambdaShapes.class.getDeclaredConstructors()) {
      MethodHandles.lookup().unreflectConstructor(shape);
    }
  }
}
