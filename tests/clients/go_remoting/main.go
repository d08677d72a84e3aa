// A service with the stock remoting client for Go. tests/clients/foreign_client.py has the lines that it takes and prints.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	mark    = "RECONCILER_OUTBOX"
	timeout = 3 * time.Second
)

var (
	printing sync.Mutex
	deciding sync.Mutex
	answers  = map[string]chan primitive.LocalTransactionState{}
	said     = map[string]primitive.LocalTransactionState{}
)

func say(event, key, body string) {
	printing.Lock()
	defer printing.Unlock()
	line, _ := json.Marshal(map[string]string{"event": event, "key": key, "body": body})
	os.Stdout.Write(append(line, '\n'))
}

func need(err error) {
	if err != nil {
		panic(err)
	}
}

func answersOf(key string) chan primitive.LocalTransactionState {
	deciding.Lock()
	defer deciding.Unlock()
	if answers[key] == nil {
		answers[key] = make(chan primitive.LocalTransactionState, 16)
	}
	return answers[key]
}

type listener struct{}

func (listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	say("half", message.TransactionId, string(message.Body))
	return <-answersOf(message.TransactionId)
}

func (listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	key := message.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)
	say("check", key, string(message.Body))
	deciding.Lock()
	defer deciding.Unlock()
	if state, found := said[key]; found {
		return state
	}
	return primitive.UnknowState
}

func stateOf(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func messageOf(topic, body string) *primitive.Message {
	// A key of this time has a letter, so that its case is seen.
	for key := primitive.CreateUniqID(); strings.ToUpper(key) == key; key = primitive.CreateUniqID() {
		time.Sleep(time.Millisecond)
	}
	return primitive.NewMessage(topic, []byte(body)).WithTag("paid").WithKeys([]string{"order-1"})
}

func main() {
	rlog.SetLogLevel("error")
	servers, topic := strings.Split(os.Args[1], ";"), os.Args[2]
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(servers), consumer.WithGroupName(os.Args[4]), consumer.WithInstance("receiver"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	need(err)
	need(receiver.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				say("received", message.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex), string(message.Body))
			}
			return consumer.ConsumeSuccess, nil
		}))
	need(receiver.Start())
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer(servers), producer.WithGroupName(os.Args[3]+"-plain"), producer.WithInstanceName("sender"),
		producer.WithRetry(5), producer.WithSendMsgTimeout(timeout),
	)
	need(err)
	need(sender.Start())
	payer, err := rocketmq.NewTransactionProducer(listener{},
		producer.WithNameServer(servers), producer.WithGroupName(os.Args[3]), producer.WithInstanceName("payer"),
		producer.WithRetry(5), producer.WithSendMsgTimeout(timeout),
	)
	need(err)
	need(payer.Start())
	say("ready", "", "")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Split(lines.Text(), " ")
		switch words[0] {
		case "send":
			sent, err := sender.SendSync(context.Background(), messageOf(topic, words[1]))
			need(err)
			say("sent", sent.MsgID, words[1])
		case "half":
			message := messageOf(topic, words[1])
			message.WithProperty(mark, words[2])
			if len(words) > 3 { // a key of the service's own
				message.WithProperty(primitive.PropertyUniqueClientMessageIdKeyIndex, words[3])
			}
			go func() {
				sent, err := payer.SendMessageInTransaction(context.Background(), message)
				need(err)
				say("ended", sent.MsgID, words[1])
			}()
		case "answer":
			deciding.Lock()
			said[words[1]] = stateOf(words[3])
			deciding.Unlock()
			answersOf(words[1]) <- stateOf(words[2])
		default:
			panic(lines.Text())
		}
	}
}
