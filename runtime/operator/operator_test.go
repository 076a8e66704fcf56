package operator

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/attach"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/secure/authority"
	"github.com/kvferry/kvferry/tools/chromium"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		chromium.Close()
		os.Exit(code)
	}))
}

var update = flag.Bool("update", false, "write the table of docs/metrics.md anew")

const testTimeout = time.Minute

// openNode opens a node of a role on ports that the system chooses.
func openNode(t *testing.T, role string, timer *Timer) *runtime.Node {
	t.Helper()
	return openNodeOf(t, role, 128, timer)
}

// openNodeOf opens a node of a role for chunks of heads of a size.
func openNodeOf(t *testing.T, role string, headSize int, timer *Timer) *runtime.Node {
	t.Helper()
	return openConfigured(t, role, timer, headSize, "")
}

// openConfigured opens a node of a role for chunks of heads of a size, with a further key of kvferry's.
func openConfigured(t *testing.T, role string, timer *Timer, headSize int, more string) *runtime.Node {
	t.Helper()
	cfg, err := config.Parse(role, []byte(`
enable_pd: true
pd_role: `+role+`
pd_peer_host: 127.0.0.1
pd_peer_init_port: 7300
pd_peer_alloc_port: 7400
pd_skip_proxy_notification: true
pd_alloc_fail_backoff_ttl: 1
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
extra_config:
  kvferry: {link: {carry_bytes: 0}, layout: {num_layers: 2, num_kv_heads: 1, head_size: `+strconv.Itoa(headSize)+`, dtype: bfloat16},
    `+more+`}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(cfg.InitPorts)
	clear(cfg.AllocPorts)
	cfg.Recorder = config.Recorder{Dir: t.TempDir(), Bytes: 1 << 30}
	n, err := runtime.Open(t.Context(), cfg, append(timer.Options(), runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open), runtime.WithAttachable(), runtime.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNode(t, n) })
	return n
}

func closeNode(t *testing.T, n *runtime.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

// serve serves sources at a loopback port.
func serve(t *testing.T, c Config) *Server {
	t.Helper()
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	c.Version, c.Log = "0.0.0-test", slog.New(slog.DiscardHandler)
	s, err := Serve(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// get returns the status and the body of an answer.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// client returns a client without connections of earlier tests.
func client(t *testing.T, transport *http.Transport) *http.Client {
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testTimeout}
}

// scrape returns the metrics, by name.
func scrape(t *testing.T, s *Server) map[string]*dto.MetricFamily {
	t.Helper()
	status, body := get(t, client(t, &http.Transport{}), "http://"+s.Addr().String()+"/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if status != http.StatusOK || err != nil {
		t.Fatalf("status %d: %v", status, err)
	}
	return all
}

// value returns the value of the series with labels in the order of their names; for a histogram the number of samples.
func value(t *testing.T, all map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	f := all["kvferry_"+name]
	if f == nil {
		t.Fatalf("there is no metric %s", name)
	}
	for _, m := range f.GetMetric() {
		var values []string
		for _, l := range m.GetLabel() {
			values = append(values, l.GetValue())
		}
		switch {
		case !slices.Equal(values, labels):
		case m.Histogram != nil:
			return float64(m.GetHistogram().GetSampleCount())
		default:
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("metric %s has no series %v", name, labels)
	return 0
}

// peerOf returns how a sender names a receiver.
func peerOf(n *runtime.Node) runtime.Peer {
	peer := runtime.Peer{Host: "127.0.0.1"}
	for _, s := range n.Servers() {
		switch s.Channel { //nolint:exhaustive // A put names these two.
		case effects.ChannelInit:
			peer.InitPort = s.Addr.Port
		case effects.ChannelAlloc:
			peer.AllocPort = s.Addr.Port
		}
	}
	return peer
}

// tryPut pushes chunks to a peer within a time.
func tryPut(t *testing.T, from *runtime.Node, to runtime.Peer, within time.Duration, request string, keys ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	pages, err := from.Sender().Reserve(context.Background(), len(keys))
	if err != nil {
		return err
	}
	_, err = from.Sender().Put(ctx, runtime.Put{Peer: to, Request: request, Keys: keys, Pages: pages, Last: true})
	return errors.Join(err, pages.Release(context.Background()))
}

// put pushes chunks from one node to the other one, and lets its engine get them.
func put(t *testing.T, from, to *runtime.Node, request string, keys ...string) *runtime.Pages {
	t.Helper()
	if err := tryPut(t, from, peerOf(to), testTimeout, request, keys...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	got, err := to.Receiver().Get(ctx, runtime.Get{Request: request, Keys: keys, Timeout: testTimeout})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The metrics of two nodes say what they did, and each metric is in docs/metrics.md.
func TestMetricsSayWhatHappened(t *testing.T) {
	senderTimer, receiverTimer := NewTimer(), NewTimer()
	from, to := openNode(t, "sender", senderTimer), openNode(t, "receiver", receiverTimer)
	agent, err := attach.Serve(attach.Config{Node: from, Path: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Close(context.Background()) })
	ends := [2]*Server{serve(t, Config{Sources: []Source{Node(from, senderTimer), Agent(agent)}}),
		serve(t, Config{Sources: []Source{Node(to, receiverTimer)}})}
	keys := []string{"m@1@0@c0ffee@bfloat16", "m@1@0@decaf@bfloat16"}
	for i := range 3 {
		got := put(t, from, to, fmt.Sprint("r", i), fmt.Sprint("m@1@0@", i, "a@bfloat16"), fmt.Sprint("m@1@0@", i, "b@bfloat16"))
		if err := got.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	held := put(t, from, to, "held", keys...)
	t.Cleanup(func() { _ = held.Release(context.Background()) })
	sender, receiver := scrape(t, ends[0]), scrape(t, ends[1])
	for _, c := range []struct {
		of     map[string]*dto.MetricFamily
		name   string
		labels []string
		want   float64
	}{
		{sender, "facts_total", []string{"ok", "put_ended"}, 4},
		{sender, "fact_items_total", []string{"ok", "put_ended"}, 8},
		{receiver, "facts_total", []string{"ok", "ready"}, 8},
		{sender, "command_duration_seconds", []string{"put", "ok"}, 4},
		{sender, "command_duration_seconds", []string{"reserve", "ok"}, 4},
		{sender, "put_stage_seconds", []string{"ok", "wire"}, 4},
		{sender, "put_stage_seconds", []string{"ok", "publish"}, 4},
		{sender, "put_stage_seconds", []string{"failed", "wire"}, 0},
		{sender, "transfers_total", []string{"ok", "write", "shm"}, 4},
		{sender, "transfer_bytes_total", []string{"write", "shm"}, 8 * 16384},
		{sender, "transfer_duration_seconds", []string{"write", "ok", "shm"}, 4},
		{receiver, "command_duration_seconds", []string{"get", "ok"}, 4},
		{sender, "node_state", []string{"serving"}, 1},
		{sender, "node_state", []string{"failed"}, 0},
		{sender, "scrape_stale", nil, 0},
		{sender, "pages_capacity", []string{"engine"}, 64},
		{sender, "pages", []string{"engine", "free"}, 64},
		{receiver, "pages", []string{"engine", "free"}, 62},
		{sender, "agent_engines", nil, 0},
		{sender, "recorder_recording", nil, 1},
	} {
		if got := value(t, c.of, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	checkDocs(t, sender, receiver)
}

// seriesMax is the number of series that a process may have. Labels have values of this program only.
const seriesMax = 1500

// checkDocs checks that docs/metrics.md lists each metric, and that the series are few.
func checkDocs(t *testing.T, scraped ...map[string]*dto.MetricFamily) {
	t.Helper()
	const file = "../../docs/metrics.md"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin: metrics -->\n", "<!-- end: metrics -->"
	before, rest, _ := strings.Cut(string(doc), begin)
	table, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s lacks the marks of the table", file)
	}
	want := metricsTable()
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		table = want
	}
	if table != want {
		t.Errorf("%s is not up to date: go test ./runtime/operator -update", file)
	}
	for _, all := range scraped {
		series := 0
		for name, f := range all {
			series += len(f.GetMetric())
			if strings.HasPrefix(name, "kvferry_") && !strings.Contains(want, "`"+name+"`") {
				t.Errorf("%s does not list %s", file, name)
			}
		}
		if series > seriesMax {
			t.Errorf("a process has %d series", series)
		}
	}
}

// A node is ready while it takes work, and live while it need not be replaced.
func TestReadyWhileItServes(t *testing.T) {
	n := openNode(t, "receiver", NewTimer())
	s := serve(t, Config{Sources: []Source{Node(n, nil)}})
	c, base := client(t, &http.Transport{}), "http://"+s.Addr().String()
	want := func(path string, status int, part string) {
		t.Helper()
		if got, body := get(t, c, base+path); got != status || !strings.Contains(body, part) {
			t.Errorf("%s: %d %s, want %d with %q", path, got, body, status, part)
		}
	}
	want("/readyz", http.StatusOK, "[+] node/serving")
	if _, err := n.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("/readyz", http.StatusServiceUnavailable, "[-] node/serving: the node is draining")
	want("/livez", http.StatusOK, "[+] node/loop")
	want("/debug/pprof/goroutine?debug=1", http.StatusOK, "goroutine profile")
	want("/nothing", http.StatusNotFound, "")

	_, body := get(t, c, base+"/status")
	var state struct {
		Ready bool
		Node  nodeInfo
	}
	if err := json.Unmarshal([]byte(body), &state); err != nil {
		t.Fatal(err)
	}
	if state.Ready || state.Node.State != runtime.StateDraining || state.Node.Pages[0].Count["free"] != 64 || len(state.Node.Servers) != 2 {
		t.Errorf("the state is %+v", state)
	}
}

func TestDirectoryIsSeen(t *testing.T) {
	cfg, err := config.ParseDirectory("directory", []byte("controller_monitor_ports: {pull: 8300, reply: 8400}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(cfg.Monitors)
	d, err := directory.Open(cfg, zmq.Config{}.Opener(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, Config{Sources: []Source{Directory(d)}})
	all := scrape(t, s)
	if value(t, all, "directory_rows", "workers") != 0 || value(t, all, "directory_log_up") != 1 || value(t, all, "scrape_stale") != 0 {
		t.Error("the metrics of an empty directory are wrong")
	}
	checkDocs(t, all)
	c, base := client(t, &http.Transport{}), "http://"+s.Addr().String()
	if status, body := get(t, c, base+"/readyz"); status != http.StatusOK {
		t.Errorf("a directory is not ready: %s", body)
	}
	if err := d.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, c, base+"/livez"); status != http.StatusServiceUnavailable || !strings.Contains(body, "[-] directory/loop") {
		t.Errorf("a directory that has ended is live: %d %s", status, body)
	}
}

// guardOf returns a guard with files of an identity, and the file of its policy.
func guardOf(t *testing.T, a *authority.Authority, identity, policy string) (g *secure.Guard, file string) {
	t.Helper()
	dir := t.TempDir()
	if err := a.WriteFolder(dir, identity, []byte(policy)); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	g, err := secure.Open(secure.Config{Mode: secure.Strict, Cert: in(authority.CertFile), Key: in(authority.KeyFile),
		CA: in(authority.CAFile), Policy: in(authority.PolicyFile), Recheck: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g, in(authority.PolicyFile)
}

// Where other hosts reach the interface, a client needs the role operator, and loses access with it.
func TestOperatorsNeedTheRole(t *testing.T) {
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	const policy = `identities:
  - {name: "spiffe://fleet/node", roles: [decode]}
  - {name: "spiffe://fleet/prometheus", roles: [operator]}
  - {name: "spiffe://fleet/engine", roles: [prefill]}
`
	server, policyFile := guardOf(t, a, "spiffe://fleet/node", policy)
	s := serve(t, Config{Address: "0.0.0.0:0", Guard: server})
	at := fmt.Sprintf("127.0.0.1:%d", s.Addr().(*net.TCPAddr).Port)

	if res, err := client(t, &http.Transport{}).Get("http://" + at + "/metrics"); err == nil {
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			t.Error("a client without TLS is served")
		}
	}
	as := func(identity string) *http.Client {
		g, _ := guardOf(t, a, identity, policy)
		return client(t, &http.Transport{TLSClientConfig: g.HTTPClientConfig()})
	}
	anonymous := as("spiffe://fleet/prometheus")
	anonymous.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = nil
	if res, err := anonymous.Get("https://" + at + "/metrics"); err == nil {
		_ = res.Body.Close()
		t.Error("a client without a certificate is served")
	}
	if status, body := get(t, as("spiffe://fleet/engine"), "https://"+at+"/metrics"); status != http.StatusForbidden ||
		!strings.Contains(body, `"spiffe://fleet/engine"`) {
		t.Errorf("a client without the role gets %d %s", status, body)
	}
	prometheus := as("spiffe://fleet/prometheus")
	if status, _ := get(t, prometheus, "https://"+at+"/metrics"); status != http.StatusOK {
		t.Errorf("an operator gets %d", status)
	}
	// The role is withdrawn while the client's connection stays open.
	withdrawn := strings.Replace(policy, "roles: [operator]", "roles: [proxy]", 1)
	if err := os.WriteFile(policyFile, []byte(withdrawn), 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testTimeout); ; {
		status, _ := get(t, prometheus, "https://"+at+"/metrics")
		if status == http.StatusForbidden {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("an operator keeps access after its role was withdrawn")
		}
	}
}

func TestExposedAddressIsRefused(t *testing.T) {
	_, err := Serve(Config{Address: "0.0.0.0:0"})
	if err == nil || !strings.Contains(err.Error(), "security.mode") {
		t.Errorf("an address that other hosts reach is served without authentication: %v", err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = Serve(Config{Address: taken.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "free the port") {
		t.Errorf("a port that is in use: %v", err)
	}
	s, err := Serve(Config{Address: "0.0.0.0:0", AllowPlain: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

// A pool without a free page is shown, and does not make the node unready: its peers wait, and would fail otherwise.
func TestFullPoolIsShown(t *testing.T) {
	from, to := openNode(t, "sender", NewTimer()), openNode(t, "receiver", NewTimer())
	s := serve(t, Config{Sources: []Source{Node(to, nil)}})
	c, url := client(t, &http.Transport{}), "http://"+s.Addr().String()+"/readyz"
	keys := make([]string, 64)
	for i := range keys {
		keys[i] = fmt.Sprintf("m@1@0@%x@bfloat16", i)
	}
	held := []*runtime.Pages{put(t, from, to, "first half", keys[:32]...), put(t, from, to, "second half", keys[32:]...)}
	waiting := make(chan error, 1)
	go func() { waiting <- tryPut(t, from, peerOf(to), testTimeout, "one more", "m@1@0@fff@bfloat16") }()
	const shown = "[!] node/pool: no page of 64 is free, and 1 requests of peers wait"
	for deadline := time.Now().Add(testTimeout); ; {
		status, body := get(t, c, url)
		if status != http.StatusOK {
			t.Fatalf("a node whose pool is full is not ready: %d %s", status, body)
		}
		if strings.Contains(body, shown) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a full pool is not shown: %s", body)
		}
	}
	id := from.Incarnation()
	wantHold(t, s, hold{Kind: "waiting", Peer: hex.EncodeToString(id[:4]), Pages: 1})
	to4, at := to.Incarnation(), peerOf(to)
	wantHold(t, serve(t, Config{Sources: []Source{Node(from, nil)}}), hold{Kind: "put", Peer: hex.EncodeToString(to4[:4]), Pages: 1,
		Addr: fmt.Sprintf("127.0.0.1:%d", at.AllocPort)})
	for _, pages := range held {
		if err := pages.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-waiting; err != nil {
		t.Errorf("the put that waited: %v", err)
	}
}

// wantHold checks that a node has one hold, of which the age is known.
func wantHold(t *testing.T, s *Server, want hold) {
	t.Helper()
	_, body := get(t, client(t, &http.Transport{}), "http://"+s.Addr().String()+"/holds?older=1ns")
	var got holdsAnswer
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Count != 1 || len(got.Holds) != 1 || got.Holds[0].AgeSeconds <= 0 {
		t.Fatalf("%v: the holds are %s, want one with its age", err, body)
	}
	if got.Holds[0].AgeSeconds = 0; got.Holds[0] != want {
		t.Errorf("the hold is %+v, want %+v", got.Holds[0], want)
	}
}

// Holds are listed from the oldest, and only those that are old enough.
func TestHoldsByAge(t *testing.T) {
	all := []rank.Hold{{Kind: rank.HoldShared, Until: 50e9}, {Kind: rank.HoldGrant, Since: 30e9, Until: 90e9, Revoked: true},
		{Kind: rank.HoldPut, Since: 10e9}}
	for older, want := range map[time.Duration]string{0: "put grant shared", 20 * time.Second: "put", time.Minute: ""} {
		var kinds []string
		got := listHolds(slices.Clone(all), 40e9, older)
		for _, h := range got.Holds {
			kinds = append(kinds, h.Kind)
		}
		if strings.Join(kinds, " ") != want || got.Count != len(kinds) {
			t.Errorf("older than %v: %v, want %q", older, kinds, want)
		}
		if older == 0 && (got.Holds[0].AgeSeconds != 30 || *got.Holds[1].EndsInSeconds != 50 || !got.Holds[1].Revoked ||
			got.Holds[2].AgeSeconds != -1) {
			t.Errorf("the holds are %+v", got.Holds)
		}
	}
	s := serve(t, Config{Sources: []Source{Node(openNode(t, "sender", NewTimer()), nil)}})
	status, body := get(t, client(t, &http.Transport{}), "http://"+s.Addr().String()+"/holds?older=soon")
	if status != http.StatusBadRequest || !strings.Contains(body, "give a time such as 60s") {
		t.Errorf("%d %s", status, body)
	}
}
