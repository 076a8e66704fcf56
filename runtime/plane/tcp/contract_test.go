package tcp_test

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

func TestMain(m *testing.M) { planetest.Main(m, tcp.Open) }

func TestContract(t *testing.T) { planetest.Run(t, tcp.Open) }

func BenchmarkPush64x1MiB(b *testing.B) { planetest.Bench(b, tcp.Open) }

func BenchmarkPush4KiB(b *testing.B) { planetest.BenchSmall(b, tcp.Open) }
