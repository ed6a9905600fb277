package raftmq.clients;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;

/** What has another name in 5.x than in 4.9. */
final class Names {
    private Names() {}

    /** MessageModel is in org.apache.rocketmq.common.protocol.heartbeat, or in org.apache.rocketmq.remoting.protocol.heartbeat. */
    static void broadcasting(DefaultMQPushConsumer c) throws ReflectiveOperationException {
        for (java.lang.reflect.Method m : DefaultMQPushConsumer.class.getMethods()) {
            if (m.getName().equals("setMessageModel")) {
                Class<?> model = m.getParameterTypes()[0];
                m.invoke(c, model.getField("BROADCASTING").get(null));
                return;
            }
        }
        throw new NoSuchMethodException("setMessageModel");
    }
}
