package operator

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// metricName finds the names of kvferry's metrics in an expression.
var metricName = regexp.MustCompile(`\bkvferry_\w+`)

// checkExpression checks that an expression of a rule or a board names metrics that exist.
func checkExpression(t *testing.T, where, expression string) {
	t.Helper()
	for _, name := range metricName.FindAllString(expression, -1) {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
		known := slices.ContainsFunc(histograms, func(h histogram) bool { return h.name == base }) ||
			slices.ContainsFunc(allMetrics, func(m *metric) bool { return m.name == name })
		if !known && !strings.Contains(string(proxyMetrics(t)), `newDesc("`+strings.TrimPrefix(name, "kvferry_proxy_")+`"`) {
			t.Errorf("%s names %s, which is no metric", where, name)
		}
	}
}

// proxyMetrics returns the source of the proxy's metrics, which no package exports.
func proxyMetrics(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../proxy/metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Each alert names metrics that exist, and has an entry in the runbook and a series in rules_test.yaml that makes it fire.
func TestAlerts(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr         string
				Labels, Annotations map[string]string
			}
		}
	}
	read := func(file string) string {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if err := yaml.Unmarshal([]byte(read("deploy/prometheus/rules.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	runbook, firing := read("docs/runbook.md"), read("deploy/prometheus/rules_test.yaml")
	count := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			count++
			checkExpression(t, r.Alert, r.Expr)
			if !strings.Contains(runbook, "\n## "+r.Alert+"\n") || r.Annotations["runbook"] != "docs/runbook.md#"+strings.ToLower(r.Alert) {
				t.Errorf("%s has no entry in docs/runbook.md, or does not link to it", r.Alert)
			}
			if !strings.Contains(firing, `alertname="`+r.Alert+`"`) {
				t.Errorf("no series of rules_test.yaml makes %s fire", r.Alert)
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("%s has no severity, or no summary", r.Alert)
			}
		}
	}
	if entries := strings.Count(runbook, "\n## Kvferry"); entries != count {
		t.Errorf("the runbook has entries for %d alerts, and there are %d", entries, count)
	}
}

// The board names metrics that exist.
func TestBoard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/kvferry.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, x := range p.Targets {
			checkExpression(t, p.Title, x.Expr)
		}
	}
}
