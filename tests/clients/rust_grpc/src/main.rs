//! A service with the stock gRPC client for Rust. tests/clients/foreign_client.py has the lines that it takes and prints.

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use tokio::io::{AsyncBufReadExt, BufReader};

const MARK: &str = "RECONCILER_OUTBOX";
const INVISIBLE: Duration = Duration::from_secs(30);

fn say(event: &str, key: &str, body: &str) {
    println!("{}", serde_json::json!({"event": event, "key": key, "body": body}));
}

fn options(address: &str) -> ClientOption {
    let mut options = ClientOption::default();
    options.set_access_url(address);
    options.set_enable_tls(false);
    options.set_timeout(Duration::from_secs(10));
    options
}

fn resolution(word: Option<&String>) -> TransactionResolution {
    match word.map(String::as_str) {
        Some("commit") => TransactionResolution::COMMIT,
        Some("rollback") => TransactionResolution::ROLLBACK,
        _ => TransactionResolution::UNKNOWN,
    }
}

async fn receive(consumer: SimpleConsumer, topic: String) {
    let everything = FilterExpression::new(FilterType::Tag, "*");
    loop {
        match consumer.receive_with(topic.clone(), &everything, 16, INVISIBLE).await {
            Ok(messages) => {
                for message in messages {
                    say("received", message.message_id(), &String::from_utf8_lossy(message.body()));
                    if let Err(error) = consumer.ack(&message).await {
                        eprintln!("{error:?}");
                    }
                }
            }
            Err(error) => eprintln!("{error:?}"),
        }
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = env::args().collect();
    let (address, topic, group) = (&arguments[1], &arguments[2], &arguments[4]);
    let mut receiving = SimpleConsumerOption::default();
    receiving.set_topics(vec![topic.clone()]);
    receiving.set_consumer_group(group.clone());
    let mut consumer = SimpleConsumer::new(receiving, options(address)).unwrap();
    consumer.start().await.unwrap();
    let to_checks: Arc<Mutex<HashMap<String, String>>> = Arc::default();
    let known = to_checks.clone();
    let mut sending = ProducerOption::default();
    sending.set_topics(vec![topic.clone()]);
    let mut producer = Producer::new_transaction_producer(
        sending,
        options(address),
        Box::new(move |_, message| {
            let key = message.message_id().to_string();
            say("check", &key, &String::from_utf8_lossy(message.body()));
            resolution(known.lock().unwrap().get(&key))
        }),
    )
    .unwrap();
    producer.start().await.unwrap();
    tokio::spawn(receive(consumer, topic.clone()));
    say("ready", "", "");
    let mut open = HashMap::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let words: Vec<&str> = line.split(' ').collect();
        let body = words[1].as_bytes().to_vec();
        match words[0] {
            "send" => {
                let message = MessageBuilder::builder()
                    .set_topic(topic.clone())
                    .set_body(body)
                    .set_tag("paid")
                    .set_keys(vec!["order-1"]);
                let sent = producer.send(message.build().unwrap()).await.unwrap();
                say("sent", sent.message_id(), words[1]);
            }
            "half" => {
                let message = MessageBuilder::transaction_message_builder(topic.clone(), body)
                    .set_tag("paid")
                    .set_keys(vec!["order-1"])
                    .set_properties(HashMap::from([(MARK, words[2])]));
                let begun = producer.send_transaction_message(message.build().unwrap()).await.unwrap();
                let key = begun.message_id().to_string();
                say("half", &key, words[1]);
                open.insert(key, (begun, words[1].to_string()));
            }
            "answer" => {
                to_checks.lock().unwrap().insert(words[1].to_string(), words[3].to_string());
                let (begun, body) = open.remove(words[1]).unwrap();
                match words[2] {
                    "commit" => begun.commit().await.unwrap(),
                    "rollback" => begun.rollback().await.unwrap(),
                    _ => (),
                }
                say("ended", words[1], &body);
            }
            _ => panic!("{line}"),
        }
    }
}
