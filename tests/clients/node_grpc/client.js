// A service with the stock gRPC client for Node. tests/clients/foreign_client.py has the lines that it takes and prints.
import { createInterface } from 'node:readline';
import { Producer, SimpleConsumer } from 'rocketmq-client-nodejs';

const MARK = 'RECONCILER_OUTBOX';
// TransactionResolution of the protocol.
const RESOLUTIONS = { unknown: 0, commit: 1, rollback: 2 };

const [endpoints, topic, , group] = process.argv.slice(2);
const open = new Map();
const toChecks = new Map();
const common = { endpoints, namespace: '', sslEnabled: false, requestTimeout: 10000 };

const say = (event, key, body) => process.stdout.write(`${JSON.stringify({ event, key, body })}\n`);

const checker = {
  async check(message) {
    say('check', message.messageId, message.body.toString());
    return RESOLUTIONS[toChecks.get(message.messageId) ?? 'unknown'];
  },
};

async function receive(consumer) {
  for (;;) {
    for (const message of await consumer.receive(16, 30000)) {
      say('received', message.messageId, message.body.toString());
      await consumer.ack(message);
    }
  }
}

async function obey(producer, [verb, ...words]) {
  if (verb === 'send') {
    const sent = await producer.send({ topic, body: Buffer.from(words[0]), tag: 'paid', keys: ['order-1'] });
    say('sent', sent.messageId, words[0]);
  } else if (verb === 'half') {
    const [body, mark] = words;
    const transaction = producer.beginTransaction();
    const properties = new Map([[MARK, mark]]);
    const message = { topic, body: Buffer.from(body), tag: 'paid', keys: ['order-1'], properties };
    const sent = await producer.send(message, transaction);
    open.set(sent.messageId, { transaction, body });
    say('half', sent.messageId, body);
  } else if (verb === 'answer') {
    const [key, word, toCheck] = words;
    toChecks.set(key, toCheck);
    const { transaction, body } = open.get(key);
    if (word === 'commit') await transaction.commit();
    if (word === 'rollback') await transaction.rollback();
    say('ended', key, body);
  } else {
    throw new Error(verb);
  }
}

const consumer = new SimpleConsumer({
  ...common, consumerGroup: group, subscriptions: new Map([[topic, '*']]), awaitDuration: 5000,
});
await consumer.startup();
const producer = new Producer({ ...common, topic, checker });
await producer.startup();
receive(consumer);
say('ready', '', '');
for await (const line of createInterface({ input: process.stdin })) await obey(producer, line.split(' '));
