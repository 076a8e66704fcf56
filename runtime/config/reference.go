package config

import (
	"fmt"
	"slices"
	"strings"
)

// Reference returns the tables of all keys as Markdown: what docs/configuration.md has between its
// marks. It is made from what Parse works with, so it cannot say anything else.
func Reference() string {
	var b strings.Builder
	b.WriteString("### LMCache's keys\n\n")
	table(&b, lmcacheKeys)
	b.WriteString("\n### Below `extra_config.kvferry`\n\n")
	table(&b, nodeKeys)
	b.WriteString("\n### Below `extra_config.kvferry`, for Ascend NPUs\n\n")
	table(&b, npuKeys)
	b.WriteString("\n### LMCache's keys of modes that this version has not\n\n")
	table(&b, laterKeys)
	b.WriteString("\n### LMCache's keys without effect here\n\nAccepted with any value, of release " + Release + ":\n")
	list(&b, ignoredKeys)
	b.WriteString("\nAnd of other releases and of LMCache-Ascend:\n")
	list(&b, strayKeys)
	return b.String()
}

// list writes names as running text, in lines that fit a screen.
func list(b *strings.Builder, names []string) {
	const columns = 118
	column := 0
	for i, name := range slices.Sorted(slices.Values(names)) {
		word := "`" + name + "`,"
		if i == len(names)-1 {
			word = "`" + name + "`."
		}
		if i > 0 && column+1+len(word) <= columns {
			b.WriteString(" ")
			column++
		} else if i > 0 {
			b.WriteString("\n")
			column = 0
		}
		b.WriteString(word)
		column += len(word)
	}
	b.WriteString("\n")
}

func table(b *strings.Builder, keys []key) {
	withRole := slices.ContainsFunc(keys, func(k key) bool { return k.role != "" })
	b.WriteString("| key | ")
	if withRole {
		b.WriteString("read by | ")
	}
	b.WriteString("takes | default | |\n|---|---|---|---|")
	if withRole {
		b.WriteString("---|")
	}
	b.WriteString("\n")
	for _, k := range keys {
		fmt.Fprintf(b, "| `%s` | ", k.name)
		if withRole {
			b.WriteString(k.role + " | ")
		}
		def := "none"
		if k.def != "" {
			def = "`" + k.def + "`"
		}
		doc := k.doc
		if len(k.aliases) > 0 {
			doc += "; also `" + strings.Join(k.aliases, "`, `") + "`"
		}
		fmt.Fprintf(b, "%s | %s | %s |\n", k.kind.takes, def, doc)
	}
}
