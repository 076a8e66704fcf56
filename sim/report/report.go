// Package report draws the trace of a simulated run as one HTML page that needs nothing else: lanes for
// nodes, messages as arrows, transfers as bars, pages, grants and leases as timelines, faults, and the
// broken promise with its story.
//
// The page is page.html with page.css and three small scripts in it, and the trace as JSON. It asks no network for
// anything, which its own content policy enforces, and opens from a file.
package report

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"

	"github.com/kvferry/kvferry/sim/internal/replace"
	"github.com/kvferry/kvferry/sim/trace"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// The scripts share one scope and stand in the page in this order.
var (
	//go:embed items.js
	itemsJS string
	//go:embed draw.js
	drawJS string
	//go:embed page.js
	pageJS string
)

var page = template.Must(template.New("page").Parse(pageHTML))

// Write writes the page of t to w.
func Write(w io.Writer, t *trace.Trace) error {
	// The encoder writes <, > and & as escapes, so nothing in the data can end the script element.
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	states, err := json.Marshal(trace.PageStates())
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	out := bufio.NewWriter(w)
	err = page.Execute(out, struct {
		Trace        *trace.Trace
		CSS          template.CSS
		Data, States template.JS
		Script       template.JS
	}{t, template.CSS(pageCSS), template.JS(data), template.JS(states),
		template.JS(itemsJS + "\n" + drawJS + "\n" + pageJS)})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// generator is in the head of each page, so that WriteFile recognises it.
const generator = `<meta name="generator" content="kvferry sim">`

// WriteFile writes the page of t to a file. It replaces a page that an earlier call wrote, and no other file.
func WriteFile(name string, t *trace.Trace) error {
	var text bytes.Buffer
	if err := Write(&text, t); err != nil {
		return err
	}
	err := replace.File(name, "the page", text.Bytes(), func(head []byte) bool {
		return bytes.Contains(head[:min(len(head), 1024)], []byte(generator))
	})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
