package raftmq.clients;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.common.message.MessageExt;

/** The messages that a consumer was given, in that order. */
final class Seen {
    private final List<MessageExt> messages = new ArrayList<>();

    synchronized void add(MessageExt m) {
        messages.add(m);
    }

    synchronized List<MessageExt> messages() {
        return new ArrayList<>(messages);
    }

    synchronized int size() {
        return messages.size();
    }

    synchronized Set<String> bodies() {
        Set<String> all = new HashSet<>();
        messages.forEach(m -> all.add(Kit.text(m.getBody())));
        return all;
    }

    synchronized Set<String> twice() {
        Set<String> all = new HashSet<>(), twice = new HashSet<>();
        for (MessageExt m : messages) {
            String body = Kit.text(m.getBody());
            if (!all.add(body)) {
                twice.add(body);
            }
        }
        return twice;
    }
}
