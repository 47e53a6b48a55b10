package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.Checkout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Killed and stopped ranks: two jobs as a test, and hundreds with {@code
 * scripts/lib/fault-campaign}.
 */
@Tag("slow")
class FaultCampaignTest {
  @Test
  @Timeout(value = 5, unit = TimeUnit.MINUTES)
  void lostRanksAreReportedAndTheOthersContinue() throws Exception {
    FaultCampaign campaign =
        new FaultCampaign(
            Integer.getInteger("faults.kills", 1),
            Integer.getInteger("faults.stops", 1),
            Long.getLong("faults.timeout", 8000));
    campaign.run(Integer.getInteger("faults.parallel", 2));
    Path page = Checkout.ROOT.resolve("target/fault-campaign.txt");
    Files.writeString(page, campaign.report());
    assertEquals(0, campaign.problems().size(), campaign::report);
  }
}
