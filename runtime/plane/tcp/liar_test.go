package tcp_test

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/plane/liar"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

func TestLies(t *testing.T) { planetest.RunLies(t, tcp.Open, liar.TCPLies()) }
