package raftmq.clients;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin's everyday commands on a state that it makes itself, and compares what they print, times, addresses and ids
 * apart, with what they print against RocketMQ 4.9.4.
 *
 * <pre>Admin --name-servers ADDRESS --broker ADDRESS (--expect FOLDER | --write FILE | --succeed)</pre>
 *
 * FOLDER has rocketmq-VERSION.txt, written by --write against RocketMQ, and raftmq-VERSION.txt, which has what is meant to
 * be another way here, each with its reason. Cluster and broker are called PeerCluster and peer-a there. --succeed only looks
 * whether commands fail that do not against RocketMQ: for clusters of several nodes.
 */
public final class Admin {
    private final String nameServers, broker;
    private final Map<String, String> transcripts = new LinkedHashMap<>();

    private Admin(String nameServers, String broker) {
        this.nameServers = nameServers;
        this.broker = broker;
    }

    public static void main(String[] args) throws Exception {
        String nameServers = null, broker = null, expect = null, write = null, succeed = null;
        for (int i = 0; i + 1 < args.length; i += 2) {
            switch (args[i]) {
                case "--name-servers": nameServers = args[i + 1]; break;
                case "--broker": broker = args[i + 1]; break;
                case "--expect": expect = args[i + 1]; break;
                case "--succeed": succeed = args[i + 1]; break;
                case "--write": write = args[i + 1]; break;
                default: throw new IllegalArgumentException("unknown argument " + args[i]);
            }
        }
        Admin admin = new Admin(nameServers, broker);
        admin.run();
        boolean good = true;
        if (write != null) {
            Files.writeString(Path.of(write), Transcripts.format(admin.transcripts));
        } else {
            String version = Kit.five() ? "5.3.3" : "4.9.4";
            good = new Transcripts(Path.of(expect != null ? expect : succeed), version).compare(admin.transcripts, expect == null);
        }
        System.exit(good ? 0 : 1);
    }

    private void run() throws Exception {
        Phase phase = new Phase(false, 1);
        Kit k = new Kit("admin", nameServers, phase);
        DefaultMQAdminExt ext = k.admin();
        for (String topic : List.of("AdmA", "AdmB")) {
            TopicConfig t = new TopicConfig(topic);
            t.setReadQueueNums(topic.equals("AdmA") ? 4 : 2);
            t.setWriteQueueNums(t.getReadQueueNums());
            ext.createAndUpdateTopicConfig(broker, t);
        }
        DefaultMQProducer p = k.config(new DefaultMQProducer("adm_pg"));
        p.setInstanceName("adm_producer");
        p.start();
        List<SendResult> sent = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            Message m = new Message("AdmA", "Tag" + i % 2, "key" + i + " all", Kit.bytes("body " + i));
            m.putUserProperty("n", "" + i);
            sent.add(p.send(m, new MessageQueue("AdmA", "peer-a", i % 4)));
        }
        p.send(new Message("AdmB", null, "other", Kit.bytes("other")), new MessageQueue("AdmB", "peer-a", 1));
        Seen seen = new Seen();
        DefaultMQPushConsumer c = k.push("adm_cg");
        c.setInstanceName("adm_consumer");
        c.subscribe("AdmA", "Tag0 || Tag1");
        k.collect(c, seen);
        Kit.await("eight consumed", 60, () -> seen.size() == 8);
        commands(sent, c, p);
        k.close();
    }

    private void commands(List<SendResult> sent, DefaultMQPushConsumer c, DefaultMQProducer p) throws Exception {
        String n = "-n " + nameServers, b = " -b " + broker, both = n + b, cluster = n + " -c PeerCluster";
        c.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        Thread.sleep(1000); // what is committed is shown at once by RocketMQ, and a moment later by Raft
        // ---- while the group and the producer are online
        run("clusterList", "clusterList " + n);
        run("clusterList-more", "clusterList " + n + " -m");
        run("topicRoute", "topicRoute " + n + " -t AdmA");
        run("topicRoute-unknown", "topicRoute " + n + " -t NoSuchTopic");
        run("topicClusterList", "topicClusterList " + n + " -t AdmA");
        run("topicStatus", "topicStatus " + n + " -t AdmA");
        run("topicStatus-unknown", "topicStatus " + n + " -t NoSuchTopic");
        run("consumerConnection", "consumerConnection " + n + " -g adm_cg");
        run("consumerConnection-offline", "consumerConnection " + n + " -g nobody_cg");
        run("consumerProgress-group", "consumerProgress " + n + " -g adm_cg");
        run("consumerProgress-unknown", "consumerProgress " + n + " -g nobody_cg");
        run("consumerStatus", "consumerStatus " + n + " -g adm_cg -s");
        run("producerConnection", "producerConnection " + n + " -g adm_pg -t AdmA");
        run("producerConnection-offline", "producerConnection " + n + " -g nobody_pg -t AdmA");
        run("producer", "producer " + both);
        run("resetOffsetByTime", "resetOffsetByTime " + n + " -g adm_cg -t AdmA -s -1");
        run("brokerConsumeStats", "brokerConsumeStats " + both);
        c.shutdown();
        p.shutdown();
        // ---- offline
        run("consumerProgress", "consumerProgress " + n);
        run("resetOffsetByTime-offline", "resetOffsetByTime " + n + " -g adm_cg -t AdmA -s 0");
        run("consumerProgress-reset", "consumerProgress " + n + " -g adm_cg");
        run("skipAccumulatedMessage", "skipAccumulatedMessage " + n + " -g adm_cg -t AdmA");
        run("cloneGroupOffset", "cloneGroupOffset " + n + " -s adm_cg -d adm_copy_cg -t AdmA");
        SendResult first = sent.get(0);
        run("queryMsgById", "queryMsgById " + n + " -i " + first.getOffsetMsgId() + (Kit.five() ? " -t AdmA" : ""));
        run("queryMsgById-bad", "queryMsgById " + n + " -i " + first.getOffsetMsgId().substring(0, 16) + "00000000000F4240" + (Kit.five() ? " -t AdmA" : ""));
        run("queryMsgByKey", "queryMsgByKey " + n + " -t AdmA -k all");
        run("queryMsgByKey-none", "queryMsgByKey " + n + " -t AdmA -k absent");
        run("queryMsgByUniqueKey", "queryMsgByUniqueKey " + n + " -t AdmA -i " + first.getMsgId());
        run("queryMsgByUniqueKey-none", "queryMsgByUniqueKey " + n + " -t AdmA -i 7F000001000000000000000000000001");
        run("queryMsgByOffset", "queryMsgByOffset " + n + " -t AdmA -b peer-a -i 1 -o 1");
        run("queryMsgByOffset-beyond", "queryMsgByOffset " + n + " -t AdmA -b peer-a -i 1 -o 100");
        run("queryCq", "queryCq " + both + " -t AdmA -q 1 -i 0");
        run("printMsg", "printMsg " + n + " -t AdmB -d true");
        run("printMsgByQueue", "printMsgByQueue " + n + " -t AdmA -a peer-a -i 2 -p true");
        run("consumeMessage", "consumeMessage " + n + " -t AdmA -b peer-a -i 0 -o 0 -c 1");
        run("allocateMQ", "allocateMQ " + n + " -t AdmA -i a,b");
        run("statsAll", "statsAll " + n + " -t AdmA");
        run("brokerStatus", "brokerStatus " + both);
        run("unknown-broker", "brokerStatus " + n + " -b 127.0.0.1:1");
        run("getBrokerConfig", "getBrokerConfig " + both);
        run("updateBrokerConfig", "updateBrokerConfig " + both + " -k fileReservedTime -v 73");
        run("updateBrokerConfig-unknown", "updateBrokerConfig " + both + " -k noSuchKey -v 73");
        run("getNamesrvConfig", "getNamesrvConfig " + n);
        run("updateTopic", "updateTopic " + cluster + " -t AdmT -r 2 -w 2");
        run("updateTopic-broker", "updateTopic " + both + " -t AdmU -r 3 -w 3 -p 6");
        run("updateTopic-order", "updateTopic " + cluster + " -t AdmO -r 2 -w 2 -o true");
        run("updateTopic-system", "updateTopic " + cluster + " -t TBW102");
        run("topicRoute-order", "topicRoute " + n + " -t AdmO");
        run("updateOrderConf-get", "updateOrderConf " + n + " -t AdmO -m get");
        run("updateTopicPerm", "updateTopicPerm " + cluster + " -t AdmT -p 4");
        run("topicRoute-read-only", "topicRoute " + n + " -t AdmT");
        // Once: the command keeps its producer, which is shut down then.
        run("sendMessage", "sendMessage " + n + " -t AdmU -p hello -k adminKey -c TagA");
        run("checkMsgSendRT", "checkMsgSendRT " + n + " -t AdmU -a 3 -s 10");
        run("updateSubGroup", "updateSubGroup " + cluster + " -g adm_new_cg -r 5 -q 2");
        run("updateKvConfig", "updateKvConfig " + n + " -s ADM -k k -v v");
        run("deleteKvConfig", "deleteKvConfig " + n + " -s ADM -k k");
        run("wipeWritePerm", "wipeWritePerm " + n + " -b peer-a");
        run("addWritePerm", "addWritePerm " + n + " -b peer-a");
        run("cleanExpiredCQ", "cleanExpiredCQ " + both);
        run("cleanUnusedTopic", "cleanUnusedTopic " + both);
        run("deleteExpiredCommitLog", "deleteExpiredCommitLog " + both);
        run("exportMetadata-nowhere", "exportMetadata " + cluster + " -f /dev/null/none");
        export("exportMetadata", "exportMetadata " + cluster, "metadata.json");
        export("exportMetadata-topics", "exportMetadata " + both + " -t", "topic.json");
        export("exportMetadata-groups", "exportMetadata " + both + " -g", "subscriptionGroup.json");
        export("exportConfigs", "exportConfigs " + cluster, "configs.json");
        export("exportMetrics", "exportMetrics " + cluster, "metrics.json");
        run("deleteSubGroup", "deleteSubGroup " + cluster + " -g adm_new_cg");
        run("deleteTopic", "deleteTopic " + cluster + " -t AdmO");
        run("deleteTopic-unknown", "deleteTopic " + cluster + " -t NoSuchTopic");
        run("topicRoute-deleted", "topicRoute " + n + " -t AdmO");
        run("topicList", "topicList " + n);
        run("topicList-clusters", "topicList " + n + " -c");
        run("haStatus", "haStatus " + both);
        run("updateNamesrvConfig", "updateNamesrvConfig " + n + " -k orderMessageEnable -v true");
        if (Kit.five()) {
            run("getConsumerConfig", "getConsumerConfig " + n + " -g adm_cg");
        }
    }

    /** Runs a command that writes a file, which becomes part of what it printed. */
    private void export(String name, String command, String file) throws Exception {
        Path folder = Files.createTempDirectory("export");
        String text = output(command + " -f " + folder).replace(folder.toString(), "FOLDER");
        Path written = folder.resolve(file);
        if (Files.exists(written)) {
            text += "\n" + Files.readString(written).replace(",", ",\n").replace("{", "{\n").replace("}", "\n}");
            Files.delete(written);
        }
        Files.delete(folder);
        transcripts.put(name, Transcripts.normal(name, text));
    }

    private void run(String name, String command) throws Exception {
        transcripts.put(name, Transcripts.normal(name, output(command)));
    }

    /** Runs one command in this process: a JVM for each would take minutes. */
    private static String output(String command) {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        PrintStream out = System.out, err = System.err, both = new PrintStream(text, true, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
        try {
            MQAdminStartup.main0(command.split(" "), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return text.toString(StandardCharsets.UTF_8);
    }
}
