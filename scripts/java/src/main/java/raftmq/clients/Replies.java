package raftmq.clients;

import static raftmq.clients.Kit.check;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply, the requester and the replier being two clients. */
final class Replies {
    private Replies() {}

    static void register(Map<String, Main.Test> tests) {
        tests.put("request-reply", Replies::requestReply);
    }

    private static void requestReply(Kit k) throws Exception {
        String topic = k.topic("t", 2);
        DefaultMQProducer requester = k.producer(), replier = k.producer();
        DefaultMQPushConsumer c = k.push(k.unique("cg"));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                try {
                    replier.send(MessageUtil.createReplyMessage(m, Kit.bytes("reply to " + Kit.text(m.getBody()))), 3000);
                } catch (Exception e) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        // Until the consumer has its queues: a request waits for its reply only so long.
        Kit.await("a first reply", Kit.LONG, () -> {
            try {
                return ask(requester, topic, "first");
            } catch (RequestTimeoutException e) {
                return false;
            }
        });
        for (int i = 0; k.more(i, 20); i++) {
            String body = "request " + i;
            k.until(() -> ask(requester, topic, body));
        }
        if (!k.moves()) {
            waiting(requester, topic);
        }
    }

    /**
     * A request() that waits is broken in both versions, against RocketMQ of the same version too: 4.9.4 gives back the request itself as
     * soon as that is sent, 5.3.3 says then that no reply came in time.
     */
    private static void waiting(DefaultMQProducer requester, String topic) throws Exception {
        String got;
        try {
            got = Kit.text(requester.request(new Message(topic, Kit.bytes("waiting")), 5000).getBody());
        } catch (RequestTimeoutException e) {
            got = "timeout";
        }
        check(got.equals(Kit.five() ? "timeout" : "waiting"), "a request that waits: %s", got);
    }

    /** By callback, which 4.9.4 calls with null when the request is sent, and once more with the reply. */
    private static boolean ask(DefaultMQProducer p, String topic, String body) throws Exception {
        CompletableFuture<Message> later = new CompletableFuture<>();
        p.request(new Message(topic, Kit.bytes(body)), new RequestCallback() {
            @Override
            public void onSuccess(Message m) {
                if (m != null) {
                    later.complete(m);
                }
            }

            @Override
            public void onException(Throwable e) {
                later.completeExceptionally(e);
            }
        }, 5000);
        try {
            String reply = Kit.text(later.get(20, TimeUnit.SECONDS).getBody());
            check(reply.equals("reply to " + body), "the reply to %s: %s", body, reply);
            return true;
        } catch (ExecutionException e) {
            throw (Exception) e.getCause();
        }
    }
}
