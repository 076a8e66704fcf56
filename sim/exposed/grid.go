package exposed

import "github.com/kvferry/kvferry/effects"

// Models returns the models of the grid. The compute time of a layer assumes 200 TFLOP/s and the weights that each of
// 8,292 tokens passes through.
func Models() []Model {
	return []Model{
		{"Qwen3-8B", 36, 4096, 18 * effects.Millisecond},
		{"Llama-3-70B", 80, 4096, 72 * effects.Millisecond},
		{"DeepSeek-V3", 61, 1152, 50 * effects.Millisecond},
	}
}

// Links returns the links of the grid.
func Links() []Link {
	link := func(name string, gbit uint64) Link {
		return Link{name, gbit * 125_000_000, 100 * effects.Microsecond, 50 * effects.Microsecond}
	}
	return []Link{link("1 Gbit/s", 1), link("5 Gbit/s", 5), link("10 Gbit/s", 10), link("25 Gbit/s", 25), link("100 Gbit/s", 100),
		link("400 Gbit/s", 400)}
}

// A Cell holds the measurements of a model over a link.
type Cell struct {
	Model   Model
	Link    Link
	Exposed [3]effects.Duration // exposed time, indexed by Mode
}

// MeasureGrid measures every model over every link and returns the first error of a measurement.
func MeasureGrid() (all []Cell, err error) {
	for _, m := range Models() {
		for _, l := range Links() {
			c := Cell{Model: m, Link: l}
			for mode := range c.Exposed {
				if c.Exposed[mode], err = Measure(m, l, Mode(mode)); err != nil {
					return nil, err
				}
			}
			all = append(all, c)
		}
	}
	return all, nil
}
