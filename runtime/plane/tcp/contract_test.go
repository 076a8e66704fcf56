package tcp_test

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

func TestMain(m *testing.M) { planetest.Main(m, openMaybeSecured) }

func TestContract(t *testing.T) { planetest.Run(t, tcp.Open) }

func TestReadsFromAFrozenOwner(t *testing.T) { planetest.CancelFromFrozen(t, tcp.Open) }

// One stream, and as many as the plane opens by default, take turns with the alternatives that they are compared to.
func BenchmarkPush64x1MiB(b *testing.B) {
	planetest.BenchPushes(b, nil, planetest.Contender{Name: "tcp-plane", Open: tcp.Open},
		planetest.Contender{Name: "tcp-plane1", Open: tcp.Config{Streams: 1}.Open})
}

// Small pages cost system calls and wake-ups.
func BenchmarkPush4096x16KiB(b *testing.B) {
	planetest.BenchManyPages(b, planetest.Contender{Name: "tcp-plane", Open: tcp.Open},
		planetest.Contender{Name: "tcp-plane1", Open: tcp.Config{Streams: 1}.Open})
}

// Reads take turns with pushes over the same links, and with the alternatives that both are compared to.
func BenchmarkRead64x1MiB(b *testing.B) {
	planetest.BenchReads(b, planetest.Contender{Name: "tcp-plane", Open: tcp.Open},
		planetest.Contender{Name: "tcp-plane1", Open: tcp.Config{Streams: 1}.Open})
}

func BenchmarkPush4KiB(b *testing.B) { planetest.BenchSmallPush(b, tcp.Open) }

func BenchmarkRead4KiB(b *testing.B) { planetest.BenchSmallRead(b, tcp.Open) }

func BenchmarkKilled(b *testing.B) { planetest.BenchKilled(b, tcp.Open) }
