package operator

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/fsm/rank/metrics"
)

// truths says of each metric what its value is compared with: in the simulator, after each step of each run (L12, and
// sim/systems/pd/ledger/metrics_truth.go for each series), by a test here, or by what else.
var truths = map[string]string{
	metrics.PagesCapacity:    "simulator",
	metrics.Pages:            "simulator",
	metrics.PagesLeased:      "simulator",
	metrics.PagesPinned:      "simulator",
	metrics.TableRows:        "simulator",
	metrics.Facts:            "simulator",
	metrics.FactItems:        "simulator",
	metrics.Transfers:        "simulator",
	metrics.TransferBytes:    "simulator",
	metrics.PutStage:         "simulator",
	metrics.TransferDuration: "simulator",

	"build_info":               "the linker states it; tests of runtime/buildinfo",
	"node_state":               "no machine: the runtime's own state; TestReadyWhileItServes",
	"scrape_stale":             "no machine: whether the loop's goroutine answers",
	"page_bytes":               "the configuration, which S22 judges by the layouts of transfers",
	"table_limit":              "the configuration; S17 judges the limits",
	"commands_in_progress":     "no machine: tickets of the runtime; L1 judges that each command ends",
	"control_dropped_total":    "the transport, which the simulator models; tests of runtime/control",
	"connections":              "the transport, which the simulator models; tests of runtime/control",
	"connections_ended_total":  "the transport, which the simulator models; tests of runtime/control",
	"tls_connections":          "TLS, which the simulator does not have; tests of runtime/secure",
	"tls_events_total":         "TLS, which the simulator does not have; tests of runtime/secure",
	"checksum_bytes_total":     "planes compare, which the simulator models; tests of runtime/plane",
	"checksum_failures_total":  "planes compare, which the simulator models; S33 judges what follows",
	"log_lines_dropped_total":  "the log's goroutine; tests of runtime/internal/loglimit",
	"recorder_recording":       "the recorder's file; tests of runtime/recording",
	"recorder_file_bytes":      "the recorder's file; tests of runtime/recording",
	"recorder_steps_total":     "the recorder's file; tests of runtime/recording",
	"directory_rows":           "directories have no exporter of their own in the simulator; L10 judges what they know",
	"directory_index_bytes":    "the memory of the process",
	"directory_log_up":         "the connection to Valkey, which the simulator models",
	"trace_spans_total":        "the exporter of OpenTelemetry; tests of runtime/tracing",
	"agent_engines":            "sessions of the agent; S17 judges their limits in the profile agent",
	"agent_calls":              "sessions of the agent; S17 judges their limits in the profile agent",
	"agent_handles":            "sessions of the agent; S17 judges their limits in the profile agent",
	"gateway_operations_total": "the gateway's driver counts; tests of runtime/gateway",
	"gateway_engines":          "the gateway's driver counts; tests of runtime/gateway",
	"command_duration_seconds": "the caller's wait, with the time in the mailbox; L1 judges when commands end",
}

// TestMetricsHaveTruths checks that each metric says what it is compared with.
func TestMetricsHaveTruths(t *testing.T) {
	known := map[string]bool{}
	note := func(name string, inSimulator bool) {
		name = strings.TrimPrefix(name, prefix)
		known[name] = true
		if truth := truths[name]; truth == "" || inSimulator != (truth == "simulator") {
			t.Errorf("%s: truths says %q; the name is one of fsm/rank/metrics: %v", name, truth, inSimulator)
		}
	}
	for _, m := range allMetrics {
		_, is := readable[strings.TrimPrefix(m.name, prefix)]
		note(m.name, is)
	}
	for i := range histograms {
		note(histograms[i].name, i > 0)
	}
	for name := range truths {
		if !known[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
}
