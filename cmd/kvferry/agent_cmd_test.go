package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/protocol"
)

// An agent prints the address for engines, accepts an engine, and stops when its context ends.
func TestAgentServesEngines(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "node.yaml"), filepath.Join(dir, "agent.sock")
	if err := os.WriteFile(file, []byte(failingNode), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	out, in := io.Pipe()
	code := make(chan int, 1)
	var log strings.Builder
	go func() {
		code <- run(ctx, []string{"agent", "--config", file, "--socket", socket}, nil, in, &log)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("it says nothing: %v; %s", lines.Err(), log.String())
	}
	var serving struct {
		Socket string
		Sides  []string
	}
	if err := json.Unmarshal(lines.Bytes(), &serving); err != nil || serving.Socket != socket ||
		strings.Join(serving.Sides, " ") != "sender" {
		t.Errorf("%s: %v", lines.Bytes(), err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hello := (&protocol.AttachRequest{Version: protocol.AttachVersion}).Append(nil)
	if _, err := conn.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(hello))), hello...)); err != nil {
		t.Fatal(err)
	}
	length := make([]byte, 4)
	if _, err := io.ReadFull(conn, length); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(length))
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	var told protocol.AttachResponse
	if err := told.Decode(body, nil); err != nil || told.Code != 0 || told.Pages == 0 {
		t.Errorf("%+v: %v", told, err)
	}
	statsAsANodeHasThem(t, conn)
	stop()
	if got := <-code; got != 0 {
		t.Errorf("it ends with %d: %s", got, log.String())
	}
}

// statsAsANodeHasThem requests the counts of an agent and checks that they have the same names as those of kvferry
// node.
func statsAsANodeHasThem(t *testing.T, conn net.Conn) {
	t.Helper()
	call := (&protocol.EngineCall{ID: 1, Op: []byte("stats")}).Append(nil)
	if _, err := conn.Write(protocol.AppendFrame(nil, call)); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, protocol.FrameBytes)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(head))
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	var answer protocol.EngineAnswer
	var said struct{ Node map[string]int }
	if err := errors.Join(answer.Decode(body, nil), json.Unmarshal(answer.Stats, &said)); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(agent.Stats{})
	if err != nil {
		t.Fatal(err)
	}
	var nodes map[string]any
	if err := json.Unmarshal(text, &nodes); err != nil {
		t.Fatal(err)
	}
	for name, value := range nodes {
		_, there := said.Node[name]
		if _, counts := value.(float64); counts && !there && name != "chunk_pages" { // chunk_pages is not a count.
			t.Errorf("an agent's stats have no %s: %s", name, answer.Stats)
		}
	}
}

func TestAgentWantsItsFlags(t *testing.T) {
	var out, log strings.Builder
	if code := run(t.Context(), []string{"agent", "--config", "x"}, nil, &out, &log); code != 2 ||
		!strings.Contains(log.String(), "--socket") {
		t.Errorf("it ends with %d: %s", code, log.String())
	}
}
