package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime/control/reserve"
)

const sharingNode = `enable_p2p: true
p2p_host: 127.0.0.1
p2p_init_ports: [%d]
p2p_lookup_ports: [%d]
p2p_pull_mode: true
transfer_channel: shm
chunk_size: 16
max_local_cpu_size: 0.001
enable_controller: true
lmcache_instance_id: node_%[1]d
lmcache_worker_ports: [9]
controller_pull_url: 127.0.0.1:%[3]d
controller_reply_url: 127.0.0.1:%[4]d
extra_config: {kvferry: {layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}}}
`

// Two nodes that share are driven over their pipes. One stores chunks, and the other finds the chunks through a
// directory and brings them with every byte correct. After a drain, no page is pinned, and all three processes end
// well.
func TestNodesShareByCommands(t *testing.T) {
	ports := reservedPorts(t, 6)
	_, stop := starts(t, "directory", "--ports", fmt.Sprintf(`{"pull": %d, "reply": %d}`, ports[0], ports[1]))
	defer stop()
	var nodes [2]func(agent.Request) agent.Response
	for i := range nodes {
		file := filepath.Join(t.TempDir(), "node.yaml")
		text := fmt.Sprintf(sharingNode, ports[2+2*i], ports[3+2*i], ports[0], ports[1])
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		says, end := starts(t, "node", "--config", file, "--commands")
		defer end()
		nodes[i] = says
		if r := says(agent.Request{}); r.Code != "ok" { // The first response reports that the node serves.
			t.Fatalf("it does not serve: %+v", r)
		}
	}
	owner, reader := nodes[0], nodes[1]
	keys := []string{"m@1@0@a1@bfloat16", "m@1@0@a2@bfloat16"}
	if r := owner(agent.Request{ID: 1, Op: "store", Keys: keys}); r.Code != "ok" {
		t.Fatalf("the store: %+v", r)
	}
	bring := agent.Request{ID: 1, Op: "bring", Request: "r", Keys: keys}
	r := reader(bring)
	for until := time.Now().Add(time.Minute); r.Code == "not_found" && time.Now().Before(until); {
		r = reader(bring) // The directory has not yet received the report.
	}
	if r.Code != "ok" || r.Hits != 2 || r.Bytes != 2*16384 || r.Wrong != 0 {
		t.Errorf("the bring: %+v", r)
	}
	for i, says := range nodes {
		lent := (1 - i) * len(keys) // pages that the owner leases
		if r := says(agent.Request{ID: 2, Op: "drain"}); r.Code != "ok" {
			t.Errorf("node %d drains: %+v", i, r)
		}
		s := says(agent.Request{ID: 3, Op: "stats"}).Stats
		if s.PagesFree != s.PagesTotal || s.PagesLentMost != lent || s.PagesLent+s.Gets+s.Grants != 0 {
			t.Errorf("node %d holds something still, or did not lend %d pages: %+v", i, lent, s)
		}
	}
}

// reservedPorts returns ports on which only programs of this test may listen, on every interface, as a directory does.
func reservedPorts(t *testing.T, n int) []uint16 {
	t.Helper()
	ports := make([]uint16, n)
	for i := range ports {
		p, err := reserve.Open("0.0.0.0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		ports[i] = p.Addr().Port
	}
	return ports
}

// starts runs a command. The function says writes a request, if it has an ID, and reads a response. The function end
// stops the command, which must succeed.
func starts(t *testing.T, args ...string) (says func(agent.Request) agent.Response, end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	in, give := io.Pipe()
	hear, out := io.Pipe()
	code := make(chan int, 1)
	var log strings.Builder
	go func() {
		code <- run(ctx, args, in, out, &log)
		out.Close()
		in.Close()
	}()
	lines := json.NewDecoder(hear)
	says = func(req agent.Request) (r agent.Response) {
		t.Helper()
		if req.ID > 0 {
			if err := json.NewEncoder(give).Encode(req); err != nil {
				t.Fatal(err)
			}
		}
		if err := lines.Decode(&r); err != nil {
			t.Fatalf("%v says no more: %v", args, err)
		}
		return r
	}
	return says, func() {
		t.Helper()
		stop()
		give.Close()
		_, _ = io.Copy(io.Discard, hear)
		if c := <-code; c != exitOK {
			t.Errorf("%v: exit code %d: %s", args, c, log.String())
		}
	}
}
