// A service with the stock gRPC client for Go. tests/clients/foreign_client.py has the lines that it takes and prints.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"time"

	client "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	mark      = "RECONCILER_OUTBOX"
	await     = 6 * time.Second // a proxy takes no less than five
	invisible = 30 * time.Second
)

var (
	lock     sync.Mutex
	open     = map[string]client.Transaction{}
	bodies   = map[string]string{}
	toChecks = map[string]client.TransactionResolution{}
)

func say(event, key, body string) {
	lock.Lock()
	defer lock.Unlock()
	line, _ := json.Marshal(map[string]string{"event": event, "key": key, "body": body})
	os.Stdout.Write(append(line, '\n'))
}

func need(err error) {
	if err != nil {
		panic(err)
	}
}

func check(message *client.MessageView) client.TransactionResolution {
	say("check", message.GetMessageId(), string(message.GetBody()))
	lock.Lock()
	defer lock.Unlock()
	return toChecks[message.GetMessageId()]
}

func messageOf(topic, body string) *client.Message {
	message := &client.Message{Topic: topic, Body: []byte(body)}
	message.SetTag("paid")
	message.SetKeys("order-1")
	return message
}

func receive(receiver client.SimpleConsumer) {
	for {
		messages, err := receiver.Receive(context.Background(), 16, invisible)
		if err != nil { // also if there is no message
			os.Stderr.WriteString(err.Error() + "\n")
		}
		for _, message := range messages {
			say("received", message.GetMessageId(), string(message.GetBody()))
			_ = receiver.Ack(context.Background(), message)
		}
	}
}

func main() {
	client.EnableSsl = false
	topic, nobody := os.Args[2], &credentials.SessionCredentials{}
	receiver, err := client.NewSimpleConsumer(
		&client.Config{Endpoint: os.Args[1], ConsumerGroup: os.Args[4], Credentials: nobody},
		client.WithSimpleAwaitDuration(await),
		client.WithSimpleSubscriptionExpressions(map[string]*client.FilterExpression{topic: client.SUB_ALL}),
	)
	need(err)
	need(receiver.Start())
	sender, err := client.NewProducer(
		&client.Config{Endpoint: os.Args[1], Credentials: nobody},
		client.WithTopics(topic), client.WithTransactionChecker(&client.TransactionChecker{Check: check}),
	)
	need(err)
	need(sender.Start())
	go receive(receiver)
	say("ready", "", "")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Split(lines.Text(), " ")
		switch words[0] {
		case "send":
			sent, err := sender.Send(context.Background(), messageOf(topic, words[1]))
			need(err)
			say("sent", sent[0].MessageID, words[1])
		case "half":
			message, transaction := messageOf(topic, words[1]), sender.BeginTransaction()
			message.AddProperty(mark, words[2])
			sent, err := sender.SendWithTransaction(context.Background(), message, transaction)
			need(err)
			key := sent[0].MessageID
			lock.Lock()
			open[key], bodies[key] = transaction, words[1]
			lock.Unlock()
			say("half", key, words[1])
		case "answer":
			key := words[1]
			lock.Lock()
			transaction, body := open[key], bodies[key]
			toChecks[key] = map[string]client.TransactionResolution{
				"commit": client.COMMIT, "rollback": client.ROLLBACK, "unknown": client.UNKNOWN,
			}[words[3]]
			lock.Unlock()
			switch words[2] {
			case "commit":
				need(transaction.Commit())
			case "rollback":
				need(transaction.RollBack())
			}
			say("ended", key, body)
		default:
			panic(lines.Text())
		}
	}
}
