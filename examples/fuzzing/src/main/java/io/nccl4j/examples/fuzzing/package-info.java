/**
 * A fuzzer for everything that parses bytes from others. It mutates valid messages, gives them to a
 * {@link io.nccl4j.examples.fuzzing.FuzzTarget}, and checks how each input ends, how long it took
 * and what it allocated. The tests of the tools depend on this module; those of the library compile
 * its sources, because the library depends on no example.
 */
package io.nccl4j.examples.fuzzing;
