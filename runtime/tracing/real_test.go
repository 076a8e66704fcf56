package tracing_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A fileSpan is a span as the file exporter of OpenTelemetry's collector writes it.
type fileSpan struct {
	Trace   string `json:"traceId"`
	ID      string `json:"spanId"`
	Parent  string `json:"parentSpanId"`
	Name    string `json:"name"`
	service string
}

// startRealCollector starts the collector that KVFERRY_COLLECTOR names, and returns its endpoint. The function stop ends
// it and returns all spans that it has written to its file.
func startRealCollector(t *testing.T, binary string) (endpoint string, stop func() []fileSpan) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, file := free.Addr().String(), filepath.Join(t.TempDir(), "spans.json")
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("yaml:{receivers: {otlp: {protocols: {http: {endpoint: %q}}}}, exporters: {file: {path: %q}}, "+
		"service: {telemetry: {metrics: {level: none}}, pipelines: {traces: {receivers: [otlp], exporters: [file]}}}}", address, file)
	command := exec.CommandContext(t.Context(), binary, "--config", config)
	output, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines, text := bufio.NewScanner(output), ""
	for !strings.Contains(text, "Everything is ready") {
		if !lines.Scan() {
			t.Fatalf("the collector has ended: %v\n%s", command.Wait(), text)
		}
		text += lines.Text() + "\n"
	}
	return "http://" + address, func() (all []fileSpan) {
		t.Helper()
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(output)
		if err := command.Wait(); err != nil {
			t.Fatalf("the collector ends with %v\n%s%s", err, text, rest)
		}
		written, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(written)) {
			all = append(all, spansOfLine(t, line)...)
		}
		return all
	}
}

func spansOfLine(t *testing.T, line string) (all []fileSpan) {
	t.Helper()
	var batch struct {
		Of []struct {
			Resource struct {
				Attributes []struct {
					Key   string
					Value struct {
						Text string `json:"stringValue"`
					}
				}
			}
			Scopes []struct{ Spans []fileSpan } `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	if err := json.Unmarshal([]byte(line), &batch); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	for _, of := range batch.Of {
		service := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.Text
			}
		}
		for _, scope := range of.Scopes {
			for _, s := range scope.Spans {
				s.service = service
				all = append(all, s)
			}
		}
	}
	return all
}

// OpenTelemetry's own collector takes the spans of a proxy, a prefill and a decode node, and writes them as one trace.
// `make collector-test` builds the collector.
func TestRealCollector(t *testing.T) {
	binary := os.Getenv("KVFERRY_COLLECTOR")
	if binary == "" {
		t.Skip("KVFERRY_COLLECTOR names no collector; run make collector-test")
	}
	endpoint, stop := startRealCollector(t, binary)
	for service, tracer := range sendRequests(t, endpoint) {
		if exported, dropped := tracer.Counts(); exported == 0 || dropped > 0 {
			t.Errorf("%s: %d spans were exported, %d dropped", service, exported, dropped)
		}
	}
	named, spans := map[string]fileSpan{}, stop()
	t.Logf("the collector wrote %d spans", len(spans))
	for _, s := range spans {
		if named[s.Name] = s; s.Trace != client[3:35] {
			t.Errorf("%s of %s is in trace %s", s.Name, s.service, s.Trace)
		}
	}
	if s := named["POST /v1/completions"]; s.service != "proxy" || s.Parent != client[36:52] {
		t.Errorf("the proxy's span is %+v", s)
	}
	for _, c := range []struct{ name, service, parent string }{
		{"prefill", "proxy", "POST /v1/completions"},
		{"decode", "proxy", "POST /v1/completions"},
		{"kvferry.put", "prefill", "prefill"},
		{"allocation", "prefill", "kvferry.put"},
		{"wire", "prefill", "kvferry.put"},
		{"kvferry.receive", "decode", "kvferry.put"},
		{"kvferry.get", "decode", "decode"},
	} {
		s, found := named[c.name]
		if !found || s.service != c.service || s.Parent != named[c.parent].ID {
			t.Errorf("%s of %s is below %s, want it of %s, below %s (%s)", c.name, s.service, s.Parent, c.service, c.parent,
				named[c.parent].ID)
		}
	}
}
