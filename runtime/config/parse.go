package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
)

// fileBytesMax bounds the size of a configuration file in bytes. The longest sensible file has a few KiB.
const fileBytesMax = 1 << 20

// The names that problems use instead of a file for a value from the environment and for an argument.
const (
	environment = "environment"
	arguments   = "arguments"
)

// A draft is a Config that is being read, with the values of keys that only have a meaning in combination.
type draft struct {
	*schema
	cfg       Config
	settings  map[string]setting // by the key's name in the table
	arguments []Argument
	overrides []override
	// problems are collected until the end, so that a single run reports all problems.
	problems []Problem

	enablePD, skipProxy            bool
	savesUnfull                    bool
	onAccelerator                  bool // pd_buffer_device names an accelerator, whether or not this build supports it
	retrievesElsewhere, storesHere bool
	allocTimeout, ownAllocTimeout  effects.Duration
	cpuBufferBytes, messageBytes   uint64
	keysPerBatch, keyBytes         uint32
	layout                         struct {
		layers, kvHeads, headSize uint32
		dtype                     protocol.Dtype
		mla                       bool
	}
	// Values of a node that shares chunks.
	p2pHost    string
	p2pInit    []uint16
	p2pTTL     effects.Duration
	controller bool
	localBytes uint64
	// Values of a directory's file.
	directory     Directory
	healthCheck   healthCheck
	workerTimeout uint32 // seconds
	lookupHashes  uint32
	// Values that are checked and have no further effect.
	unusedWord string
	unused     time.Duration
	unusedPort uint16
}

// A setting is the value of a key and the place of the value in a file or in the environment.
type setting struct {
	field  string // the name that the user wrote, such as an alias or an environment variable
	file   string
	node   *yaml.Node // the value; its line is 0 if it is from the environment
	secret bool
}

// newDraft returns the draft of an empty file. The draft has the default configuration of the state machine
// (rank.DefaultConfig). The remaining defaults are in the table of keys.
func newDraft(s *schema) *draft {
	return &draft{schema: s, settings: map[string]setting{}, cfg: Config{Machine: rank.DefaultConfig(),
		HCCL: HCCL{TrafficClass: HCCLDefault, ServiceLevel: HCCLDefault}}}
}

func (s setting) newProblem(code Code, remedy string) Problem {
	p := Problem{Code: code, File: s.file, Field: s.field, Remedy: remedy}
	if s.node != nil {
		p.Line, p.Column = s.node.Line, s.node.Column
		p.Value = renderValue(s.node)
		if shown := shortenValue(s.node.Value); s.secret || strings.Contains(s.node.Value, "@") {
			if s.secret {
				p.Value, shown = masked, masked
			}
			if s.node.Value != "" { // The remedy may quote the refused value.
				p.Remedy = strings.ReplaceAll(p.Remedy, s.node.Value, shown)
			}
		}
	}
	return p
}

// Parse reads the configuration of a node. name is the name of data in messages. env looks up an environment variable
// and may be nil. The variable LMCACHE_ plus a key or an alias in upper case overrides that key of the file, and
// LMCACHE_EXTRA_CONFIG, in JSON, overrides keys below extra_config.
//
// Notes of the Config name the settings that were accepted but have a different effect here than in LMCache. The error
// is an *Error with all problems.
func Parse(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	if IsDirectory(data) {
		return nil, &Error{Problems: []Problem{{Code: Conflict, File: name,
			Remedy: "this file describes a directory and not a node: run kvferry directory --config with it"}}}
	}
	d := newDraft(&nodeSchema)
	d.cfg.Name = name
	if err := d.readSources(name, data, env, d.validate); err != nil {
		return nil, err
	}
	d.cfg.settings = d.settings
	return &d.cfg, nil
}

// readSources reads a file and the environment by the draft's schema, and then calls validate to check the values
// together.
func (d *draft) readSources(name string, data []byte, env func(string) (string, bool), validate func()) error {
	d.readFile(name, data)
	if env != nil {
		d.readEnvironment(env)
	}
	for _, a := range d.arguments {
		d.recordValue(a.Key, setting{field: a.Label, file: arguments, node: &yaml.Node{Kind: yaml.ScalarNode, Value: a.Value}})
	}
	// If the YAML could not be read, validate would only report missing keys.
	if !slices.ContainsFunc(d.problems, func(p Problem) bool { return p.Code == Syntax }) {
		d.applyKeys(d.top, "")
		d.applyKeys(d.extra, "")
		d.applyKeys(d.own, ownPath(""))
		validate()
	}
	if len(d.problems) > 0 {
		sortProblems(d.problems)
		return &Error{Problems: d.problems, Notes: d.overrideNotes()}
	}
	d.cfg.Notes = append(d.cfg.Notes, d.overrideNotes()...)
	sortProblems(d.cfg.Notes)
	return nil
}

func (d *draft) addProblem(p Problem) { d.problems = append(d.problems, p) }

func (d *draft) readFile(name string, data []byte) {
	if len(data) > fileBytesMax {
		d.addProblem(Problem{Code: Syntax, File: name, Remedy: fmt.Sprintf("the file has %d bytes, at most %d are read", len(data),
			fileBytesMax)})
		return
	}
	root, problem := loadMapping(name, data)
	if problem != nil {
		d.addProblem(*problem)
	} else if root != nil {
		d.walkTop(name, root)
	}
}

// loadMapping returns the mapping that a file consists of, or nil for a file that contains only comments.
func loadMapping(file string, data []byte) (*yaml.Node, *Problem) {
	var doc yaml.Node
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	if err := yaml.Load(data, &doc); err != nil {
		p := Problem{Code: Syntax, File: file, Remedy: "this is not one YAML document: " +
			strings.TrimPrefix(err.Error(), "yaml: ")}
		var at *yaml.LoadError
		if errors.As(err, &at) && at.Message != "" {
			p.Line, p.Column = at.Mark.Line, at.Mark.Column
			p.Remedy = "this is not one YAML document: " + strings.TrimPrefix(at.Message, "yaml: ")
		}
		return nil, &p
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, &Problem{Code: Syntax, File: file, Line: root.Line, Column: root.Column,
			Remedy: "write a mapping: key: value"}
	}
	return root, nil
}

// walkTop records the keys at the top level of a file in d.found.
func (d *draft) walkTop(file string, m *yaml.Node) {
	d.forEachPair(file, "", m, func(name string, at, value *yaml.Node) {
		where := setting{field: name, file: file, node: value}
		if k := findKey(d.top, name); k != nil {
			d.recordValue(k.name, where)
		} else if name == "extra_config" {
			d.walkExtra(where)
		} else if !slices.Contains(d.ignored, name) {
			d.addUnknownKey(file, name, at)
		}
	})
}

// walkExtra reads kvferry's mapping in extra_config. The remaining keys of extra_config belong to further programs.
func (d *draft) walkExtra(extra setting) {
	if isNull(extra.node) {
		return
	}
	if extra.node.Kind != yaml.MappingNode {
		d.addProblem(extra.newProblem(Type, "write a mapping"))
		return
	}
	d.forEachPair(extra.file, "extra_config.", extra.node, func(name string, at, value *yaml.Node) {
		if k := findKey(d.extra, extraPrefix+name); k != nil {
			d.recordValue(k.name, setting{field: k.name, file: extra.file, node: value})
		} else if name == "kvferry" {
			d.walkOwn(setting{field: "extra_config.kvferry", file: extra.file, node: value}, "")
		} else if strings.HasPrefix(name, "kvferry") {
			d.addProblem(Problem{Code: UnknownKey, File: extra.file, Line: at.Line, Column: at.Column, Field: "extra_config." + name,
				Remedy: "write kvferry's keys in one mapping: extra_config: {kvferry: {...}}"})
		} else if remedy := d.misplacedRemedy(name, value); remedy != "" {
			d.addProblem(Problem{Code: UnknownKey, File: extra.file, Line: at.Line, Column: at.Column,
				Field: "extra_config." + shortenValue(name), Remedy: remedy})
		} else if remark := unreadNote(name); remark != "" {
			d.addNoteAt(setting{field: extraPrefix + shortenValue(name), file: extra.file, node: value}, remark)
		}
	})
}

// unreadNote returns the note for a key below extra_config that neither kvferry nor LMCache reads, or "" if the key
// needs no note. An unread key is not a problem, because programs around LMCache keep their own keys there.
func unreadNote(name string) string {
	if slices.Contains(ignoredExtraKeys, name) || slices.ContainsFunc(pluginGroups, func(group string) bool {
		return strings.HasPrefix(name, group)
	}) {
		return ""
	}
	remark := "no effect: neither kvferry nor LMCache " + LMCacheRelease + " reads this key"
	if near := nearestName(name, ignoredExtraKeys); near != "" {
		remark += "; did you mean " + extraPrefix + near + "?"
	}
	return remark
}

// misplacedRemedy returns the remedy for an unknown key below extra_config that was probably meant for kvferry, because
// the name is close to a key of kvferry or because the value contains keys of kvferry. The result is "" for a key that
// belongs to another program.
func (d *draft) misplacedRemedy(name string, value *yaml.Node) string {
	ours := []string{"kvferry"}
	for _, k := range d.extra {
		ours = append(ours, strings.TrimPrefix(k.name, extraPrefix))
	}
	if near := nearestName(name, ours); near != "" {
		return fmt.Sprintf("there is no such key; did you mean extra_config.%s?", near)
	}
	if findKey(d.own, name) != nil {
		return "this is a key of kvferry's own; move it to " + ownPath(name)
	}
	if d.isGroup(name) && value.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(value.Content); i += 2 {
			if path := name + "." + value.Content[i].Value; findKey(d.own, path) != nil {
				return "these are keys of kvferry's own; move them to " + ownPath(name)
			}
		}
	}
	return ""
}

// walkOwn records a mapping of kvferry's own keys in d.found. prefix is empty or ends in a dot.
func (d *draft) walkOwn(m setting, prefix string) {
	if isNull(m.node) {
		return
	}
	if m.node.Kind != yaml.MappingNode {
		d.addProblem(m.newProblem(Type, "write a mapping"))
		return
	}
	d.forEachPair(m.file, m.field+".", m.node, func(name string, at, value *yaml.Node) {
		path := prefix + name
		where := setting{field: ownPath(path), file: m.file, node: value}
		if k := findKey(d.own, path); k != nil {
			d.recordValue(ownPath(k.name), where)
		} else if d.isGroup(path) {
			d.walkOwn(where, path+".")
		} else {
			d.addUnknownOwnKey(m.file, path, at)
		}
	})
}

// forEachPair calls visit for each key and value of a mapping, and reports keys that are given twice.
func (d *draft) forEachPair(file, path string, m *yaml.Node, visit func(name string, at, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		at, value := m.Content[i], m.Content[i+1]
		p := Problem{File: file, Line: at.Line, Column: at.Column, Field: path + shortenValue(at.Value)}
		if at.Kind != yaml.ScalarNode || at.Value == "<<" || value.Kind == yaml.AliasNode {
			p.Code, p.Remedy = Syntax, "write plain keys and values, without anchors, aliases or merges"
			d.addProblem(p)
			continue
		}
		if line, twice := seen[at.Value]; twice {
			p.Code, p.Remedy = Duplicate, fmt.Sprintf("given in line %d already; keep one", line)
			d.addProblem(p)
			continue
		}
		seen[at.Value] = at.Line
		visit(at.Value, at, value)
	}
}

// recordValue records the value of a key. The environment overrides the file. Within the file, or within the
// environment, a key may have only one value, under whichever name.
func (d *draft) recordValue(name string, s setting) {
	if isNull(s.node) {
		return // A null value means that the key is not given, as None does in LMCache.
	}
	s.secret = d.findKey(name).secret
	if old, twice := d.settings[name]; twice && old.file == s.file {
		d.addProblem(s.newProblem(Duplicate, fmt.Sprintf("%s sets the same key; keep one", old.field)))
		return
	}
	if old, given := d.settings[name]; given && renderValue(old.node) != renderValue(s.node) {
		d.overrides = append(d.overrides, override{name, old})
	}
	d.settings[name] = s
}

// An override is a value of the file that the environment or an argument replaced with another value.
type override struct {
	name string // the name of the key
	old  setting
}

// overrideNotes returns a note for each overridden value of the file, with the value that replaced the file's.
func (d *draft) overrideNotes() (notes []Problem) {
	for _, o := range d.overrides {
		was := o.old.newProblem(Note, "")
		at := was.File
		if was.Line > 0 {
			at = fmt.Sprintf("%s:%d", was.File, was.Line)
		}
		notes = append(notes, d.settings[o.name].newProblem(Note,
			fmt.Sprintf("it overrides %s of %s, which is %q", was.Field, at, was.Value)))
	}
	return notes
}

// readEnvironment records the values of environment variables in d.found. An empty variable counts as not set.
func (d *draft) readEnvironment(env func(string) (string, bool)) {
	for _, k := range d.top {
		for _, name := range append([]string{k.name}, k.aliases...) {
			variable := d.envPrefix + strings.ToUpper(name)
			if value, set := env(variable); set && value != "" {
				d.recordValue(k.name, setting{field: variable, file: environment, node: fromEnvironment(value)})
			}
		}
	}
	variable := d.envPrefix + "EXTRA_CONFIG"
	if value, set := env(variable); set && value != "" {
		root, problem := loadMapping(environment, []byte(value))
		if problem != nil {
			problem.Field, problem.Line, problem.Column = variable, 0, 0
			d.addProblem(*problem)
		} else if root != nil {
			eraseLines(root)
			d.walkExtra(setting{field: variable, file: environment, node: root})
		}
	}
}

// fromEnvironment converts a text to a YAML node: a list if the text has a comma, as in LMCache, or is in brackets, and
// a scalar otherwise.
func fromEnvironment(value string) *yaml.Node {
	value = strings.TrimSpace(value)
	inner, bracketed := strings.CutPrefix(value, "[")
	if bracketed {
		inner, bracketed = strings.CutSuffix(inner, "]")
	}
	// "[::1]" is a host and not a list.
	if !bracketed && !strings.Contains(value, ",") || strings.Contains(value, ":") {
		return &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for item := range strings.SplitSeq(inner, ",") {
		list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(item)})
	}
	return list
}

// eraseLines removes line numbers within a variable, which have no meaning for the user.
func eraseLines(n *yaml.Node) {
	n.Line, n.Column = 0, 0
	for _, c := range n.Content {
		eraseLines(c)
	}
}

// applyKeys reads the values of keys into the draft, from the file or else from the default. Defaults are parsed in the
// same way as values that users write, so that the documented default is the real default.
func (d *draft) applyKeys(keys []key, path string) {
	for _, k := range keys {
		if s, given := d.settings[path+k.name]; given {
			switch code, remedy := k.kind.read(d, s.node); {
			case code == Note:
				d.addNoteAt(s, remedy)
			case code != codeOK:
				d.addProblem(s.newProblem(code, remedy))
			case k.noEffect != "":
				d.addNote(path+k.name, k.noEffect)
			}
		} else if k.def != "" {
			if code, remedy := k.kind.read(d, &yaml.Node{Kind: yaml.ScalarNode, Value: k.def}); code != codeOK {
				panic(fmt.Sprintf("BUG: default %q of %s: %s", k.def, k.name, remedy))
			}
		}
	}
}

// isNull reports whether a node is YAML's null.
func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// renderValue renders a value for a message.
func renderValue(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode {
		return "{...}"
	}
	if n.Kind != yaml.SequenceNode {
		return shortenValue(n.Value)
	}
	items := make([]string, len(n.Content))
	for i, c := range n.Content {
		items[i] = renderValue(c)
	}
	return shortenValue("[" + strings.Join(items, ", ") + "]")
}

// findKey returns the row of a key by name or by alias.
func findKey(keys []key, name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
		for _, alias := range keys[i].aliases {
			if alias == name {
				return &keys[i]
			}
		}
	}
	return nil
}
