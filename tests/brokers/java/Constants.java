import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.TreeMap;

/** Prints constants of RocketMQ's protocol classes as JSON: class name, constant, number or text. */
public class Constants {
    private static final String[] CLASSES = {
        "org.apache.rocketmq.remoting.protocol.RequestCode",
        "org.apache.rocketmq.remoting.protocol.ResponseCode",
        "org.apache.rocketmq.common.sysflag.MessageSysFlag",
        "org.apache.rocketmq.common.sysflag.PullSysFlag",
        "org.apache.rocketmq.common.constant.PermName",
    };
    private static final String PROPERTIES = "org.apache.rocketmq.common.message.MessageConst";

    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder("{\n");
        for (String name : CLASSES) {
            TreeMap<String, Integer> numbers = new TreeMap<>();
            for (Class<?> c = Class.forName(name); c != Object.class; c = c.getSuperclass()) {
                for (Field field : c.getDeclaredFields()) {
                    if (Modifier.isStatic(field.getModifiers()) && field.getType() == int.class) {
                        field.setAccessible(true);
                        numbers.put(field.getName(), field.getInt(null));
                    }
                }
            }
            append(out, name, numbers);
            out.append(",\n");
        }
        TreeMap<String, Integer> versions = new TreeMap<>();
        Object[] all = Class.forName("org.apache.rocketmq.common.MQVersion$Version").getEnumConstants();
        for (Object one : all) {
            if (!one.toString().contains("SNAPSHOT") && ((Enum<?>) one).ordinal() < 520) {
                versions.put(one.toString(), ((Enum<?>) one).ordinal());
            }
        }
        append(out, "org.apache.rocketmq.common.MQVersion$Version", versions);
        TreeMap<String, String> properties = new TreeMap<>();
        for (Field field : Class.forName(PROPERTIES).getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && field.getType() == String.class) {
                properties.put(field.getName(), '"' + (String) field.get(null) + '"');
            }
        }
        out.append(",\n");
        append(out, PROPERTIES, properties);
        System.out.print(out.append("\n}\n"));
    }

    private static void append(StringBuilder out, String name, TreeMap<String, ?> numbers) {
        out.append(" \"").append(name).append("\": {");
        String separator = "";
        for (var entry : numbers.entrySet()) {
            out.append(separator).append("\n  \"").append(entry.getKey()).append("\": ").append(entry.getValue());
            separator = ",";
        }
        out.append("\n }");
    }
}
