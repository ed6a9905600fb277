package raftmq.clients;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * What commands printed, by the commands' names, with what differs from run to run taken out. In a file each begins with a line
 * "#### NAME", in raftmq-VERSION.txt with "#### NAME: REASON".
 */
final class Transcripts {
    private static final String MARK = "#### ";

    private final Map<String, String> theirs, ours;
    private final Map<String, String> reasons = new LinkedHashMap<>();

    Transcripts(Path folder, String version) throws IOException {
        theirs = parse(folder.resolve("rocketmq-" + version + ".txt"), null);
        ours = parse(folder.resolve("raftmq-" + version + ".txt"), reasons);
    }

    static String format(Map<String, String> transcripts) {
        StringBuilder b = new StringBuilder();
        transcripts.forEach((name, text) -> b.append(MARK).append(name).append('\n').append(text));
        return b.toString();
    }

    private static Map<String, String> parse(Path file, Map<String, String> reasons) throws IOException {
        Map<String, String> all = new LinkedHashMap<>();
        String name = null;
        for (String line : Files.readAllLines(file)) {
            if (line.startsWith(MARK)) {
                String[] parts = line.substring(MARK.length()).split(": ", 2);
                name = parts[0];
                all.put(name, "");
                if (reasons != null) {
                    reasons.put(name, parts[1]);
                }
            } else if (name != null) {
                all.merge(name, line + "\n", String::concat);
            }
        }
        return all;
    }

    private static final String[][] RULES = {
        {"\\d{4}-\\d\\d-\\d\\d[ T#]\\d\\d:\\d\\d:\\d\\d([,.:#]\\d+)?", "TIME"},
        {"\\b1[78]\\d{11}\\b", "MILLIS"},
        {"\\b\\d{1,3}(\\.\\d{1,3}){3}(:\\d+)?", "ADDRESS"},
        {"\\b[0-9A-F]{32,56}\\b", "ID"},
        {"(\\d+\\.)?\\d+E?-?\\d* (B|KiB|MiB|GiB|TiB)", "SIZE"},
        {"\\d+\\.\\d+", "N.N"},
        {"ADDRESS@\\S+", "CLIENT"},
        {"(phyOffset|physicOffset|commitLogOffset|CommitLog Offset)([=:] *)\\d+", "$1$2N"},
        {"[ \\t]+", " "},
    };

    /** Times, addresses, ids, fractions and widths go; lines are sorted, as many come in the order of a Java hash map. */
    static String normal(String name, String text) {
        List<String> lines = new ArrayList<>();
        for (String line : text.split("\n")) {
            if (line.startsWith("\tat ") || line.startsWith("\t... ") || line.contains("RocketmqRemoting") || line.startsWith("For more information") || line.startsWith("See http")) {
                continue;
            }
            for (String[] rule : RULES) {
                line = Pattern.compile(rule[0]).matcher(line).replaceAll(rule[1]);
            }
            line = line.strip();
            switch (name) { // values are this broker's own
                case "brokerStatus": line = line.replaceAll("^([^:]*?) *:.*", "$1").replaceAll("/\\S+/commitlog", "PATH"); break;
                case "getBrokerConfig": case "getNamesrvConfig": line = line.replaceAll("^(\\S+) =.*", "$1"); break;
                case "sendMessage": line = line.replaceAll("^(\\S+) \\d+ SEND_OK", "$1 N SEND_OK"); break;
                case "checkMsgSendRT": line = line.replaceAll("\\d+$", "N"); break;
                case "wipeWritePerm": case "addWritePerm": line = line.replaceAll("OK, \\d+$", "OK, N"); break;
                case "statsAll": line = line.replaceAll(" \\d+( \\d+)?$", ""); break; // of 24 hours, counted once a minute or later
                case "exportMetadata-topics": case "exportMetadata-groups": line = line.replaceAll("\"counter\":\\d+", "\"counter\":N"); break;
                case "exportMetrics": line = line.replaceAll("-?\\d+\\b", "N"); break;
                default:
            }
            // When a client first commits its retry queue, which groups the tool itself used, and when RocketMQ first looks for half messages is a
            // matter of time.
            boolean chance = line.startsWith("%RETRY%") && (name.startsWith("consumerProgress") || name.startsWith("brokerConsume"))
                    || line.contains("%RETRY%TOOLS_CONSUMER") || name.startsWith("topicList") && line.endsWith("RMQ_SYS_TRANS_HALF_TOPIC") || name.equals("producer") && lines.contains(line);
            if (!line.isEmpty() && !chance) {
                lines.add(line);
            }
        }
        Collections.sort(lines);
        return lines.isEmpty() ? "" : String.join("\n", lines) + "\n";
    }

    /** Prints what differs. With failuresOnly a difference is only a failure where RocketMQ has none. */
    boolean compare(Map<String, String> got, boolean failuresOnly) {
        int same = 0, meant = 0, wrong = 0;
        for (Map.Entry<String, String> e : got.entrySet()) {
            String name = e.getKey(), text = e.getValue(), want = theirs.get(name);
            if (want == null) {
                throw new IllegalStateException("no transcript of RocketMQ for " + name);
            }
            if (failuresOnly) {
                if (failed(text) && !failed(want) && !failed(ours.getOrDefault(name, ""))) {
                    wrong++;
                    System.out.println("  " + name + ": fails, and does not against RocketMQ\n" + indent("+ ", text));
                } else {
                    same++;
                }
            } else if (reasons.containsKey(name)) {
                if (text.equals(want)) {
                    wrong++;
                    System.out.println("  " + name + ": no difference any more: take it out of the list");
                } else if (!text.equals(ours.get(name))) {
                    wrong++;
                    System.out.println("  " + name + ": differs from RocketMQ in another way than is listed");
                    difference(ours.get(name), text);
                } else {
                    meant++;
                }
            } else if (text.equals(want)) {
                same++;
            } else {
                wrong++;
                System.out.println("  " + name + ": differs from RocketMQ");
                difference(want, text);
            }
        }
        if (!failuresOnly) {
            reasons.forEach((name, reason) -> System.out.println("  " + name + " is another way here: " + reason));
        }
        System.out.printf("  mqadmin: %d commands as against RocketMQ, %d another way as listed, %d wrong%n", same, meant, wrong);
        return wrong == 0;
    }

    private static boolean failed(String text) {
        return text.contains("Exception");
    }

    private static String indent(String mark, String text) {
        return text.lines().map(l -> "    " + mark + l + "\n").reduce("", String::concat);
    }

    private static void difference(String want, String got) {
        List<String> less = new ArrayList<>(want.lines().collect(java.util.stream.Collectors.toList())), more = new ArrayList<>(got.lines().collect(java.util.stream.Collectors.toList()));
        for (String line : want.lines().collect(java.util.stream.Collectors.toList())) {
            if (more.remove(line)) {
                less.remove(line);
            }
        }
        System.out.print(indent("- ", String.join("\n", less)) + indent("+ ", String.join("\n", more)));
    }
}
