import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.zip.CRC32;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * What a service in another language computes to take part: nothing but the JDK. `java OtherLanguage.java
 * docs/reference/test-vectors.md` checks it against every vector of that page.
 */
public final class OtherLanguage {
    /** Shard of a key, which is also the queue of its announcement: CRC-32 of the text. */
    static long shard(String key, int shards) {
        CRC32 crc = new CRC32();
        crc.update(key.getBytes(StandardCharsets.US_ASCII));
        return crc.getValue() % shards;
    }

    /** What goes into the commit set: the bytes that upper-case digits spell; of another key a zero byte and its text. */
    static byte[] member(String key) {
        if (key.length() % 2 == 0 && key.matches("[0-9A-F]{32,64}")) {
            return HexFormat.of().parseHex(key);
        }
        byte[] member = new byte[Math.max(33, 1 + key.length())]; // zeros before the text, and behind a short one
        System.arraycopy(key.getBytes(StandardCharsets.US_ASCII), 0, member, 1, key.length());
        return member;
    }

    /** The Redis key of the commit set. */
    static String commitSet(String environment, String topic, String group, String key, int shards) {
        return "reconciler:v1:{" + environment + ":" + topic + ":" + group + ":" + shard(key, shards) + "}:commit";
    }

    /** Body of an announcement of one key; a null tag is JSON's null. */
    static byte[] announcement(String environment, String topic, String group, String tag, String key, long committedAt) {
        String json = "{\"v\":1,\"env\":" + quoted(environment) + ",\"topic\":" + quoted(topic) + ",\"group\":" + quoted(group)
            + ",\"keys\":[{\"key\":" + quoted(key) + ",\"tag\":" + (tag == null ? "null" : quoted(tag))
            + ",\"committed_at_ms\":" + committedAt + "}]}";
        return json.getBytes(StandardCharsets.UTF_8);
    }

    /** Enough for names; take your JSON library for more. */
    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /** Property RECONCILER_SIGNATURE of an announcement. */
    static String signature(byte[] body, String secret) throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(secret.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        return HexFormat.of().formatHex(mac.doFinal(body));
    }

    /** Properties of RocketMQ's own that these vectors have; a service leaves out what it did not set itself. */
    private static final Set<String> RESERVED = Set.of("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "TRAN_MSG", "PGROUP");

    /** Column content_digest. */
    static byte[] digest(String topic, String tags, String keys, Map<String, String> properties, byte[] body)
            throws GeneralSecurityException {
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        part(sha, utf8(topic));
        part(sha, utf8(tags));
        part(sha, utf8(keys));
        // By bytes: String.compareTo orders UTF-16 units, which differs beyond U+FFFF.
        TreeMap<byte[], String> sorted = new TreeMap<>(Arrays::compareUnsigned);
        properties.forEach((name, value) -> sorted.put(utf8(name), value));
        RESERVED.forEach(name -> sorted.remove(utf8(name)));
        sorted.forEach((name, value) -> {
            part(sha, name);
            part(sha, utf8(value));
        });
        part(sha, body);
        return sha.digest();
    }

    private static void part(MessageDigest sha, byte[] bytes) {
        sha.update(ByteBuffer.allocate(4).putInt(bytes.length).array());
        sha.update(bytes);
    }

    private static byte[] utf8(String text) {
        return text == null ? new byte[0] : text.getBytes(StandardCharsets.UTF_8);
    }

    // ------------------------------------------------------------------ the vectors

    public static void main(String[] arguments) throws Exception {
        int checked = 0;
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ");
            String computed = computed(words);
            if (computed == null) {
                continue;
            }
            String expected = words[words.length - 1];
            if (!computed.equals(expected)) {
                System.err.println(line + "\n  computed " + computed);
                System.exit(1);
            }
            checked++;
        }
        System.out.println(checked + " vectors agree");
    }

    private static String computed(String[] w) throws GeneralSecurityException {
        HexFormat hex = HexFormat.of();
        return switch (w[0]) {
            case "shard" -> Long.toString(shard(w[1], Integer.parseInt(w[2])));
            case "member" -> hex.formatHex(member(w[1]));
            case "commit-set" -> encoded(commitSet(text(w[1]), text(w[2]), text(w[3]), w[4], Integer.parseInt(w[5])));
            case "announcement" -> hex.formatHex(
                announcement(text(w[1]), text(w[2]), text(w[3]), text(w[4]), w[5], Long.parseLong(w[6])));
            case "signature" -> signature(hex.parseHex(w[2]), text(w[1]));
            case "digest" -> hex.formatHex(
                digest(text(w[1]), text(w[2]), text(w[3]), pairs(w[4]), w[5].equals("-") ? new byte[0] : hex.parseHex(w[5])));
            default -> null;
        };
    }

    private static Map<String, String> pairs(String text) {
        Map<String, String> found = new TreeMap<>();
        for (String pair : text.equals("-") ? new String[0] : text.split(",")) {
            String[] sides = pair.split("=");
            found.put(text(sides[0]), text(sides[1]));
        }
        return found;
    }

    private static String text(String word) {
        return word.equals("-") ? null : java.net.URLDecoder.decode(word, StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return java.net.URLEncoder.encode(text, StandardCharsets.UTF_8);
    }
}
