//go:build cgo && linux

package directory_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/reserve"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(fileOfChild); file != "" {
		if err := serveAlone(file); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = 30 * time.Second

// open starts a directory from a file.
func open(t *testing.T, file string) *directory.Directory {
	t.Helper()
	cfg, err := config.ParseDirectory("directory.yaml", []byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := directory.Open(cfg, zmq.Config{}.Opener(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, d) })
	return d
}

func shut(t *testing.T, d *directory.Directory) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		t.Error(err)
	}
}

// freePorts writes the file of a directory with sockets of its own, whose ports stay the same. They are free on every
// interface, because a directory without a host binds them on all.
func freePorts(t testing.TB, sets int) string {
	t.Helper()
	var list []string
	for range sets {
		var ports []any
		for range 3 {
			p, err := reserve.Open("0.0.0.0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			ports = append(ports, p.Addr().Port)
		}
		list = append(list, fmt.Sprintf("{pull: %d, reply: %d, heartbeat: %d}", ports...))
	}
	return "controller_host: 127.0.0.1\ncontroller_monitor_ports: [" + strings.Join(list, ", ") + "]\n"
}

// A worker is a handmade LMCache worker: sockets of libzmq, and messages of a codec other than kvferry's.
type worker struct {
	t                       testing.TB
	instance                string
	rank                    int
	url                     string
	push, reply, heartbeats *zmq4.Socket
}

func newWorker(t testing.TB, at config.MonitorPorts, instance string, rank int) *worker {
	t.Helper()
	w := &worker{t: t, instance: instance, rank: rank, url: fmt.Sprintf("10.0.0.%d:9960", 1+rank)}
	w.push = w.socket(zmq4.PUSH, at.Pull)
	w.reply = w.socket(zmq4.DEALER, at.Reply)
	return w
}

func (w *worker) socket(kind zmq4.Type, port uint16) *zmq4.Socket {
	w.t.Helper()
	c, err := zmq4.NewContext()
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := c.NewSocket(kind)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := errors.Join(s.Close(), c.Term()); err != nil {
			w.t.Error(err)
		}
	})
	if err := errors.Join(s.SetLinger(0), s.SetRcvtimeo(patience), s.SetSndtimeo(patience),
		s.Connect(fmt.Sprintf("tcp://127.0.0.1:%d", port))); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// A field of a message, in its order.
type field struct {
	name  string
	value any
}

// message is a tagged map, as msgspec writes it.
func (w *worker) message(tag string, fields ...field) []byte {
	w.t.Helper()
	var b strings.Builder
	e := msgpack.NewEncoder(&b)
	e.UseCompactInts(true)
	err := e.EncodeMapLen(1 + len(fields))
	for _, f := range append([]field{{"type", tag}}, fields...) {
		err = errors.Join(err, e.EncodeString(f.name), e.Encode(f.value))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return []byte(b.String())
}

func (w *worker) who() []field {
	return []field{{"instance_id", w.instance}, {"worker_id", w.rank}}
}

func (w *worker) listens() []field {
	return append(w.who(), field{"ip", "10.0.0.9"}, field{"port", 9950 + w.rank}, field{"peer_init_url", w.url})
}

// ask sends a request as a worker's DEALER does, and reads the reply.
func (w *worker) ask(s *zmq4.Socket, body []byte) map[string]any {
	w.t.Helper()
	if _, err := s.SendMessage("", body); err != nil {
		w.t.Fatal(err)
	}
	frames, err := s.RecvMessageBytes(0)
	if err != nil || len(frames) != 2 || len(frames[0]) != 0 {
		w.t.Fatalf("answer %q: %v", frames, err)
	}
	var answer map[string]any
	if err := msgpack.Unmarshal(frames[1], &answer); err != nil {
		w.t.Fatal(err)
	}
	return answer
}

// register registers the worker, and connects to the heartbeat address.
func (w *worker) register() {
	w.t.Helper()
	answer := w.ask(w.reply, w.message("RegisterMsg", w.listens()...))
	extra, _ := answer["extra_config"].(map[string]any)
	url, _ := extra["heartbeat_url"].(string)
	var port uint16
	if _, err := fmt.Sscanf(url, "127.0.0.1:%d", &port); err != nil {
		w.t.Fatalf("registered: %v: %v", answer, err)
	}
	w.heartbeats = w.socket(zmq4.DEALER, port)
}

// beat sends a heartbeat and reports whether a full sync is requested.
func (w *worker) beat() bool {
	w.t.Helper()
	answer := w.ask(w.heartbeats, w.message("HeartbeatMsg", w.listens()...))
	commands, _ := answer["commands"].([]any)
	for _, c := range commands {
		if c.(map[string]any)["command_type"] == "full_sync" {
			return true
		}
	}
	return false
}

// operations returns a report of consecutive operations of one kind.
func (w *worker) operations(op string, from int, keys ...uint64) []byte {
	var all []map[string]any
	for i, k := range keys {
		all = append(all, map[string]any{"op_type": op, "key": k, "seq_num": from + i})
	}
	return w.message("BatchedKVOperationMsg", append(w.who(), field{"location", "LocalCPUBackend"},
		field{"operations", all})...)
}

// tell sends messages together, as a worker's PUSH does with waiting ones.
func (w *worker) tell(all ...[]byte) {
	w.t.Helper()
	if _, err := w.push.SendMessage(all); err != nil {
		w.t.Fatal(err)
	}
}

// holder returns the worker that has the first of these chunks.
func (w *worker) holder(keys ...uint64) (instance, url string, hits int64) {
	w.t.Helper()
	answer := w.ask(w.reply, w.message("BatchedP2PLookupMsg", append([]field{{"hashes", keys}}, w.who()...)...))
	first, _ := answer["layout_info"].([]any)
	if len(first) == 0 {
		w.t.Fatalf("looked up: %v", answer)
	}
	entry, _ := first[0].([]any)
	if len(entry) != 4 {
		w.t.Fatalf("looked up: %v", answer)
	}
	var n int64
	if _, err := fmt.Sscan(fmt.Sprint(entry[2]), &n); err != nil {
		w.t.Fatal(err)
	}
	return entry[0].(string), entry[3].(string), n
}

// finds asks until it gets this reply, because messages on different sockets have no order.
func (w *worker) finds(instance string, hits int64, keys ...uint64) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		got, url, n := w.holder(keys...)
		if got == instance && n == hits && (url != "") == (instance != "") {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%v: %d chunks at %q (%s), want %d at %q", keys, n, got, url, hits, instance)
		}
	}
}

// sync reports everything that the worker has.
func (w *worker) sync(id string, keys ...uint64) {
	w.t.Helper()
	at := append(w.who(), field{"location", "LocalCPUBackend"}, field{"sync_id", id})
	answer := w.ask(w.reply, w.message("FullSyncStartMsg", append(at, field{"total_keys", len(keys)},
		field{"batch_count", len(keys)})...))
	if answer["accepted"] != true {
		w.t.Fatalf("full sync: %v", answer)
	}
	for i, k := range keys {
		w.tell(w.message("FullSyncBatchMsg", append(at, field{"batch_id", i}, field{"keys", []uint64{k}})...))
	}
	w.tell(w.message("FullSyncEndMsg", append(at, field{"actual_total_keys", len(keys)})...))
}

func TestPlainWorkersFindEachOther(t *testing.T) {
	d := open(t, freePorts(t, 2))
	// They use different sets of sockets of one directory.
	a := newWorker(t, d.Ports()[0], "a", 0)
	b := newWorker(t, d.Ports()[1], "b", 0)
	other := newWorker(t, d.Ports()[1], "b", 1)
	for _, w := range []*worker{a, b, other} {
		w.register()
		if w.beat() {
			t.Errorf("%s is asked for a full sync, and has told everything", w.instance)
		}
	}
	b.finds("", 0, 1, 2)
	a.tell(a.operations("admit", 0, 1, 2, 3), a.operations("evict", 3, 3), a.operations("admit", 4, 4))
	b.finds("a", 2, 1, 2, 3)
	b.finds("a", 1, 4)
	// Nobody is told of itself, and no rank of another.
	a.finds("", 0, 1, 2)
	other.finds("", 0, 1, 2)

	// What is no message is answered where somebody waits, dropped where nobody does, and stops nothing.
	if answer := b.ask(b.reply, []byte("nonsense")); answer["type"] != "ErrorMsg" {
		t.Errorf("nonsense is answered by %v", answer)
	}
	a.tell([]byte("nonsense"), a.operations("admit", 5, 5))
	b.finds("a", 2, 4, 5)

	// A gap is noticed, and the next heartbeat's answer asks for everything.
	a.tell(a.operations("admit", 9, 9))
	for !a.beat() {
	}
	a.sync("sync-1", 7, 8)
	b.finds("a", 2, 7, 8)
	b.finds("", 0, 1)

	a.tell(a.message("DeRegisterMsg", a.listens()[:4]...))
	b.finds("", 0, 7)
}

func TestRestartedDirectoryGetsFullSyncs(t *testing.T) {
	file := freePorts(t, 1)
	first := open(t, file)
	a := newWorker(t, first.Ports()[0], "a", 0)
	b := newWorker(t, first.Ports()[0], "b", 0)
	a.register()
	b.register()
	a.tell(a.operations("admit", 0, 1, 2))
	b.finds("a", 2, 1, 2)
	shut(t, first)
	if f, ok := first.Figures(); ok {
		t.Errorf("one that has ended knows %+v", f)
	}

	second := open(t, file)
	b.finds("", 0, 1, 2)
	if !a.beat() {
		t.Error("a directory that knows nothing does not ask for a full sync")
	}
	a.sync("again", 1, 2)
	b.finds("a", 2, 1, 2)
	if f, ok := second.Figures(); !ok || f.Chunks-f.Retired != 2 {
		t.Errorf("it knows %+v", f)
	}
}

func TestSilentWorkersAreDropped(t *testing.T) {
	d := open(t, freePorts(t, 1)+"health_check_interval: 1\nlmcache_worker_timeout: 1\n")
	a := newWorker(t, d.Ports()[0], "a", 0)
	b := newWorker(t, d.Ports()[0], "b", 0)
	a.register()
	a.tell(a.operations("admit", 0, 1))
	b.finds("a", 1, 1)
	b.finds("", 0, 1)
}
