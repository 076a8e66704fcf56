package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/reserve"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
)

// A prometheusServer is a real Prometheus that scrapes processes of a test.
type prometheusServer struct {
	*testing.T
	url     string
	targets string // the file from which it reads what it scrapes
	client  *http.Client
}

// promql returns the values of an expression, by all their labels.
func (p *prometheusServer) promql(expression string) map[string]string {
	p.Helper()
	status, body := get(p.T, p.client, p.url+"/api/v1/query?query="+url.QueryEscape(expression))
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); status != http.StatusOK || err != nil {
		p.Fatalf("%s: %d %s", expression, status, body)
	}
	all := map[string]string{}
	for _, r := range answer.Data.Result {
		all[fmt.Sprint(r.Metric)] = fmt.Sprint(r.Value[1])
	}
	return all
}

// await waits until an expression has a value, or none.
func (p *prometheusServer) await(expression string, want bool) {
	p.Helper()
	for deadline := time.Now().Add(testTimeout); ; {
		if len(p.promql(expression)) > 0 == want {
			return
		}
		if time.Now().After(deadline) {
			p.Fatalf("%s has a value: %v, for a minute", expression, !want)
		}
	}
}

// scrapeOnly makes Prometheus scrape these addresses from now on.
func (p *prometheusServer) scrapeOnly(servers ...*Server) {
	p.Helper()
	var targets []string
	for _, s := range servers {
		targets = append(targets, s.Addr().String())
	}
	text, err := json.Marshal([]map[string]any{{"targets": targets}})
	if err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(p.targets+".new", text, 0o600); err != nil {
		p.Fatal(err)
	}
	if err := os.Rename(p.targets+".new", p.targets); err != nil {
		p.Fatal(err)
	}
}

// minutes finds how long a condition of an alert must hold, and the windows of its expression.
var minutes = regexp.MustCompile(`for: \d+m|\[\d+m\]`)

// startPrometheus starts Prometheus with the rules, in which minutes are seconds, so that a test can wait for them.
func startPrometheus(t *testing.T, program string) *prometheusServer {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fast := minutes.ReplaceAllStringFunc(string(rules), func(s string) string { return strings.Replace(s, "m", "s", 1) })
	fast = strings.ReplaceAll(fast, "[1s]", "[2s]")
	p := &prometheusServer{T: t, targets: filepath.Join(dir, "targets.json"), client: client(t, &http.Transport{})}
	p.scrapeOnly()
	settings := fmt.Sprintf(`global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: kvferry
    file_sd_configs: [{files: [%s], refresh_interval: 200ms}]
`, p.targets)
	for name, text := range map[string]string{"rules.yaml": fast, "prometheus.yaml": settings} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port, err := reserve.Open("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	address := fmt.Sprintf("127.0.0.1:%d", port.Addr().Port)
	p.url = "http://" + address
	var log strings.Builder
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for deadline := time.Now().Add(testTimeout); ; {
		res, err := p.client.Get(p.url + "/-/ready")
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return p
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("Prometheus does not serve: %s", log.String())
		}
	}
}

// boardQueries returns the expressions of the board, with the variables of Grafana filled in.
func boardQueries(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/kvferry.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range board.Panels {
		for i, x := range p.Targets {
			all[fmt.Sprint(p.Title, " ", i)] = strings.NewReplacer("$instance", ".*", "$__rate_interval", "10s").Replace(x.Expr)
		}
	}
	return all
}

// A real Prometheus scrapes real nodes: each query of the board has data, and alerts fire and end with what provokes them.
// `make prometheus-test` runs it; a minute of a rule is a second here.
func TestPrometheus(t *testing.T) {
	program := os.Getenv("KVFERRY_PROMETHEUS")
	if program == "" {
		t.Skip("KVFERRY_PROMETHEUS does not name a Prometheus: make prometheus-test")
	}
	p := startPrometheus(t, program)
	senderTimer, receiverTimer := NewTimer(), NewTimer()
	from, to := openNode(t, "sender", senderTimer), openNode(t, "receiver", receiverTimer)
	cfg, err := config.ParseDirectory("directory", []byte("controller_monitor_ports: {pull: 8300, reply: 8400}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(cfg.Monitors)
	d, err := directory.Open(cfg, zmq.Config{}.Opener(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	sender := serve(t, Config{Sources: []Source{Node(from, senderTimer)}})
	receiver := serve(t, Config{Sources: []Source{Node(to, receiverTimer)}})
	known := serve(t, Config{Sources: []Source{Directory(d)}})
	p.scrapeOnly(sender, receiver, known)
	firing := func(alert string, s *Server) string {
		return fmt.Sprintf(`ALERTS{alertstate="firing",alertname=%q,instance=%q}`, alert, s.Addr())
	}
	number := 0
	transfer := func() *runtime.Pages {
		number++
		return put(t, from, to, fmt.Sprint("r", number), fmt.Sprintf("m@1@0@%x@bfloat16", number))
	}
	release := func(pages *runtime.Pages) {
		if err := pages.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// repeat calls f until an expression has a value, or none.
	repeat := func(until string, want bool, f func()) {
		t.Helper()
		for deadline := time.Now().Add(testTimeout); len(p.promql(until)) > 0 != want; f() {
			if time.Now().After(deadline) {
				t.Fatalf("%s has a value: %v, for a minute; alerts: %v", until, !want, p.promql("ALERTS"))
			}
		}
	}
	load := func(until string, want bool) {
		t.Helper()
		repeat(until, want, func() { release(transfer()) })
	}
	load(`rate(kvferry_facts_total{fact="put_ended",code="ok"}[10s]) > 1`, true)

	t.Run("the receiver's pool is full", func(t *testing.T) {
		var held []*runtime.Pages
		for range 62 {
			held = append(held, transfer())
		}
		repeat(firing("KvferryPoolFull", receiver), true, func() { // Chunks of three requests find no page.
			var waiting sync.WaitGroup
			for i := range 3 {
				waiting.Go(func() {
					_ = tryPut(t, from, peerOf(to), 2*time.Second, fmt.Sprint("waits ", i), fmt.Sprintf("m@1@0@%xa@bfloat16", i),
						fmt.Sprintf("m@1@0@%xb@bfloat16", i))
				})
			}
			waiting.Wait()
		})
		for _, pages := range held {
			release(pages)
		}
		p.await(firing("KvferryPoolFull", receiver), false)
	})
	t.Run("puts fail", func(t *testing.T) {
		gone := openNode(t, "receiver", NewTimer())
		peer := peerOf(gone)
		closeNode(t, gone)
		repeat(firing("KvferryPutsFail", sender), true, func() {
			number++
			if err := tryPut(t, from, peer, time.Second, fmt.Sprint("lost ", number), "m@1@0@fffffe@bfloat16"); err == nil {
				t.Fatal("a put to a process that has ended succeeds")
			}
		})
		load(firing("KvferryPutsFail", sender), false)
	})
	t.Run("peers are refused", func(t *testing.T) {
		repeat(firing("KvferryPeersRefused", receiver), true, func() {
			// A sender does not soon call a peer again that is not of its kind, so each try is one of another sender.
			other := openNodeOf(t, "sender", 64, NewTimer())
			if err := tryPut(t, other, peerOf(to), time.Second, "unfit", "m@1@0@fffffd@bfloat16"); err == nil {
				t.Fatal("a put of another layout succeeds")
			}
			closeNode(t, other)
		})
		p.await(firing("KvferryPeersRefused", receiver), false)
	})
	t.Run("chunks lapse", func(t *testing.T) {
		timer := NewTimer()
		forgetful := openConfigured(t, "receiver", timer, 128, "retention: 1s, ")
		kept := serve(t, Config{Sources: []Source{Node(forgetful, timer)}})
		p.scrapeOnly(sender, receiver, known, kept)
		repeat(firing("KvferryChunksLapse", kept), true, func() { // No engine gets these chunks.
			number++
			key := fmt.Sprintf("m@1@0@%x@bfloat16", number)
			if err := tryPut(t, from, peerOf(forgetful), testTimeout, fmt.Sprint("r", number), key); err != nil {
				t.Fatal(err)
			}
		})
		p.await(firing("KvferryChunksLapse", kept), false)
		_ = kept.Close()
		p.scrapeOnly(sender, receiver, known)
		p.await(fmt.Sprintf("up{instance=%q}", kept.Addr()), false)
	})
	t.Run("the sender is gone", func(t *testing.T) {
		_ = sender.Close()
		p.await(firing("KvferryDown", sender), true)
		// Prometheus forgets a target that is not configured any more, as after a scale-down.
		p.scrapeOnly(receiver, known)
		p.await(firing("KvferryDown", sender), false)
	})
	t.Run("the board has data", func(t *testing.T) {
		sender = serve(t, Config{Sources: []Source{Node(from, senderTimer)}})
		p.scrapeOnly(sender, receiver, known)
		load(`rate(kvferry_command_duration_seconds_count{call="get"}[10s]) > 1`, true)
		for title, query := range boardQueries(t) {
			switch {
			case strings.Contains(query, "kvferry_proxy_") || strings.Contains(query, "kvferry_agent_"): // neither runs here
			case strings.Contains(title, "nobody fetched") || strings.Contains(title, "part in use"): // nothing of it happened
			default:
				p.await(query, true)
			}
		}
	})
	if left := p.promql(`ALERTS{alertstate="firing"}`); len(left) > 0 {
		t.Errorf("alerts that still fire: %v", left)
	}
}
