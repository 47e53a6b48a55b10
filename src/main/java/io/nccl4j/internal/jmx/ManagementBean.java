package io.nccl4j.internal.jmx;

import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.Poller;
import java.lang.management.ManagementFactory;
import javax.management.InstanceAlreadyExistsException;
import javax.management.JMException;
import javax.management.MBeanServerFactory;
import javax.management.ObjectName;
import org.apache.logging.log4j.Logger;

/**
 * Registers the MBean of this process. The JDK's MBean server takes 0.2 s of processor time to
 * create, so the bean does not cause that: a thread looks once a second whether anything else, such
 * as an agent or a console that attaches, has created it.
 *
 * <p>This class needs the module {@code java.management}, which other classes may not require.
 */
public final class ManagementBean {
  private static final String NAME = "io.nccl4j:type=Statistics";
  private static final long POLL_MILLIS = 1000;
  private static final Logger LOG = Loggers.of(ManagementBean.class);
  private static final Poller SERVER =
      new Poller(
          Thread.ofPlatform().daemon().name("nccl4j-jmx").factory(),
          POLL_MILLIS,
          ManagementBean::registerIfServerExists,
          () -> !ManagementBean.pending());

  // The bean, from the first open backend to the last.
  private static Object bean;
  private static boolean tried;
  private static boolean registered;

  private ManagementBean() {}

  /** Registers a bean as soon as there is an MBean server, unless it is removed before. */
  public static void add(Object mxBean) {
    synchronized (ManagementBean.class) {
      bean = mxBean;
      tried = false;
    }
    registerIfServerExists();
    if (pending()) {
      SERVER.watch();
    }
  }

  private static synchronized boolean pending() {
    return bean != null && !tried;
  }

  private static synchronized void registerIfServerExists() {
    if (!pending() || MBeanServerFactory.findMBeanServer(null).isEmpty()) {
      return;
    }
    tried = true;
    try {
      ManagementFactory.getPlatformMBeanServer().registerMBean(bean, new ObjectName(NAME));
      registered = true;
    } catch (InstanceAlreadyExistsException e) {
      LOG.info("{} shows another class loader's nccl4j, not this one's", NAME);
    } catch (JMException e) {
      LOG.warn("{} cannot be registered", NAME, e);
    }
  }

  /** Removes the bean. */
  public static synchronized void remove() {
    bean = null;
    if (registered) {
      registered = false;
      try {
        ManagementFactory.getPlatformMBeanServer().unregisterMBean(new ObjectName(NAME));
      } catch (JMException e) {
        LOG.warn("{} cannot be unregistered", NAME, e);
      }
    }
  }
}
