// Sends one message with the stock remoting client for Go and prints its unique key: `client NAME_SERVERS TOPIC`.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer(strings.Split(os.Args[1], ";")),
		producer.WithGroupName("go-service"),
		producer.WithRetry(5),
	)
	if err != nil {
		panic(err)
	}
	if err := sender.Start(); err != nil {
		panic(err)
	}
	// A key of this time has a letter, so that its case is seen.
	for !hasLower(primitive.CreateUniqID()) {
		time.Sleep(time.Millisecond)
	}
	message := primitive.NewMessage(os.Args[2], []byte("paid")).WithTag("paid").WithKeys([]string{"order-1"})
	sent, err := sender.SendSync(context.Background(), message)
	if err != nil {
		panic(err)
	}
	fmt.Println(sent.MsgID)
	_ = sender.Shutdown()
}

func hasLower(key string) bool {
	return strings.ToUpper(key) != key
}
