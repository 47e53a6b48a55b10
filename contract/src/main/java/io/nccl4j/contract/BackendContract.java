package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.DeviceType;
import io.nccl4j.Event;
import io.nccl4j.Feature;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

/** The properties of a backend, and the objects that it creates for a device. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class BackendContract {
  abstract BackendUnderTest underTest();

  @Test
  void devicesAreNumberedFromZero() {
    try (Backend backend = underTest().open(2)) {
      List<Device> devices = backend.devices();
      assertFalse(devices.isEmpty());
      for (int i = 0; i < devices.size(); i++) {
        assertEquals(i, devices.get(i).index());
        assertFalse(devices.get(i).name().isBlank());
        assertTrue(devices.get(i).memoryBytes() > 0);
      }
      assertThrows(UnsupportedOperationException.class, devices::clear);
    }
  }

  @Test
  void backendHasNameAndLibraryVersion() {
    try (Backend backend = underTest().open(1)) {
      assertFalse(Backend.libraryVersion().isBlank());
      assertTrue(backend.toString().contains(backend.name()));
    }
  }

  @Test
  void requiredAndDeclaredFeaturesAreSupported() {
    try (Backend backend = underTest().open(1)) {
      assertTrue(backend.supports(Feature.SPLIT));
      assertTrue(backend.supports(Feature.PRE_MUL_SUM));
      assertTrue(backend.supports(Feature.GRAPHS));
      assertEquals(underTest().movesFloat8(), backend.supports(Feature.FLOAT8_DATA));
      assertEquals(underTest().reducesFloat8(), backend.supports(Feature.FLOAT8_REDUCTION));
      assertThrows(NullPointerException.class, () -> backend.supports(null));
    }
  }

  @Test
  void uniqueIdsDiffer() {
    try (Backend backend = underTest().open(1)) {
      assertNotEquals(backend.newUniqueId(), backend.newUniqueId());
    }
  }

  @Test
  void uniqueIdCloseIsIdempotentAndAllowedAfterBackend() {
    Backend backend = underTest().open(1);
    UniqueId id = backend.newUniqueId();
    backend.closeUniqueId(id);
    backend.close();
    backend.closeUniqueId(id);
    assertThrows(NullPointerException.class, () -> backend.closeUniqueId(null));
    UniqueId otherBackendsId =
        backend.deviceType() == DeviceType.HOST
            ? UniqueId.fromHex("01".repeat(UniqueId.BYTES))
            : Backend.reference(1).newUniqueId();
    assertThrows(IllegalArgumentException.class, () -> backend.closeUniqueId(otherBackendsId));
  }

  @Test
  void streamsAndEventsBelongToTheirDevice() {
    try (Backend backend = underTest().open(2)) {
      for (Device device : backend.devices()) {
        try (Stream stream = backend.newStream(device.index());
            Event event = backend.newEvent(device.index())) {
          assertEquals(device.index(), stream.device());
          assertEquals(device.index(), event.device());
          assertEquals(backend.deviceType(), stream.deviceType());
          assertEquals(backend.deviceType(), event.deviceType());
          assertTrue(stream.isOpen());
          assertTrue(event.isOpen());
        }
      }
    }
  }
}
