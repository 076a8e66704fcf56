package exposed

import (
	"fmt"
	"math"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// MarkdownTable returns a Markdown table with one row per cell.
func MarkdownTable(grid []Cell) string {
	var b strings.Builder
	b.WriteString("| model | link | a layer on it | left by layer | as a whole | ratio |\n|---|---|---|---|---|---|\n")
	for i := range grid {
		c := &grid[i]
		layers, whole := c.Exposed[ByLayer], c.Exposed[AsWhole]
		fmt.Fprintf(&b, "| %s | %s | %s of %s | %s | %s | %.2f |\n", c.Model.Name, c.Link.Name,
			formatMS(c.Link.batchTime(c.Model.LayerBytes())), formatMS(c.Model.LayerTime), formatMS(layers), formatMS(whole),
			float64(layers)/float64(whole))
	}
	return b.String()
}

func formatMS(d effects.Duration) string {
	x := float64(d) / float64(effects.Millisecond)
	return fmt.Sprintf("%.*f ms", max(0, 1-int(math.Log10(max(1, x)))), x)
}

// The size of the plot, and the positions and ranges of the axes.
const (
	width, height            = 845, 460
	left, right, top, bottom = 110, 620, 60, 410
	timeMin, timeMax         = 0.5, 30_000 // ms
)

// PlotSVG returns an SVG plot of the cells with labelled axes. Both axes are logarithmic, and times are virtual. Each
// model has a colour; the lines for transfers as a whole are dashed.
func PlotSVG(grid []Cell) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`font-family="sans-serif" font-size="13">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, s)
	}
	line := func(x1, y1, x2, y2 float64, style string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, style)
	}
	text(left, 22, "start", "What is left of a transfer when the last layer is computed, of 8,292 tokens")
	text(left, 42, "start", "Simulated, in virtual time: not measured on hardware")
	fmt.Fprintf(&b, `<text transform="translate(22 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+bottom)/2,
		"time left, virtual (logarithmic)")
	for v := 1.0; v <= 10_000; v *= 10 {
		line(left, timeY(v), right, timeY(v), `stroke="#ddd"`)
		text(left-8, timeY(v)+4, "end", fmt.Sprintf("%g ms", v))
	}
	for _, l := range Links() {
		line(linkX(&l), top, linkX(&l), bottom, `stroke="#ddd"`)
		text(linkX(&l), bottom+18, "middle", strings.TrimSuffix(l.Name, " Gbit/s"))
	}
	text((left+right)/2, bottom+40, "middle", "link, Gbit/s (logarithmic)")
	colours := []string{"#1b6ca8", "#c0392b", "#27864a"}
	for m, model := range Models() {
		for _, mode := range []Mode{ByLayer, AsWhole} {
			style := fmt.Sprintf(`stroke="%s" stroke-width="2"`, colours[m])
			suffix := " by layer"
			if mode == AsWhole {
				style, suffix = style+` stroke-dasharray="6 4"`, " as a whole"
			}
			var points []string
			for i := range grid {
				if c := &grid[i]; c.Model.Name == model.Name {
					exposed := float64(c.Exposed[mode]) / float64(effects.Millisecond)
					points = append(points, fmt.Sprintf("%.1f,%.1f", linkX(&c.Link), timeY(exposed)))
				}
			}
			fmt.Fprintf(&b, `<polyline fill="none" points="%s" %s/>`+"\n", strings.Join(points, " "), style)
			at := float64(top + 20 + 40*m + 18*int(mode))
			line(right+8, at-4, right+34, at-4, style)
			text(right+40, at, "start", model.Name+suffix)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func linkX(l *Link) float64 {
	return left + (right-left)*math.Log(float64(l.BytesPerSecond)/125e6)/math.Log(400)
}

func timeY(v float64) float64 {
	return bottom - (bottom-top)*math.Log(v/timeMin)/math.Log(timeMax/timeMin)
}
