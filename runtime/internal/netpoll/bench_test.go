package netpoll_test

import (
	"io"
	"testing"
	"time"
)

// BenchmarkPingPong sends 64 bytes and waits for as many, between goroutines of one process.
func BenchmarkPingPong(b *testing.B) {
	for name, poll := range map[string]time.Duration{"net": 0, "poll=50µs": 50 * time.Microsecond} {
		b.Run(name, func(b *testing.B) {
			client, server := pair(b, "tcp", poll)
			go func() { _, _ = io.Copy(struct{ io.Writer }{server}, struct{ io.Reader }{server}) }()
			buf := make([]byte, 64)
			for b.Loop() {
				if _, err := client.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(client, buf); err != nil {
					b.Fatal(err)
				}
			}
			_, _ = client.Close(), server.Close()
		})
	}
}
