/**
 * Shared by the packages that use the generated bindings: finding and loading the native libraries,
 * converting result codes to exceptions, and deadlines for blocking native calls. Not exported.
 */
package io.nccl4j.internal;
