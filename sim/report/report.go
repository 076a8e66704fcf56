// Package report draws the trace of a simulated run as a single self-contained HTML page. The page shows nodes as
// lanes, messages as arrows, transfers as bars, the timelines of pages, grants and leases, the faults, and the violated
// property with its story.
//
// The page consists of page.html with page.css, three small scripts and the trace as JSON embedded in the page. The
// page opens from a file and makes no network request; the content security policy of the page enforces this.
//
// Example: after a run with a recorder, the caller passes the trace to WriteFile with a file name and opens the file in
// a browser. A second run may write to the same name, because WriteFile replaces pages that an earlier call wrote.
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

// The scripts share one scope and are embedded in the page in this order.
var (
	//go:embed items.js
	itemsJS string
	//go:embed draw.js
	drawJS string
	//go:embed page.js
	pageJS string
)

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// Write writes the HTML page for t to w and returns the first error of encoding or writing.
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
	err = pageTemplate.Execute(out, struct {
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

// generator appears in the head of each page, so that WriteFile recognises the pages of earlier calls.
const generator = `<meta name="generator" content="kvferry sim">`

// WriteFile writes the HTML page for t to the named file. An existing file is replaced only if an earlier call wrote
// that file; otherwise WriteFile returns an error.
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
