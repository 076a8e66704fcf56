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
	b.WriteString("\n### LMCache's keys without effect here\n\nAccepted with any value: ")
	names := slices.Sorted(slices.Values(ignoredKeys))
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "`%s`", name)
	}
	b.WriteString(".\n")
	return b.String()
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
