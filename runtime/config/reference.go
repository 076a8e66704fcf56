package config

import (
	"fmt"
	"slices"
	"strings"
)

// columnsMax is the maximum line length of the generated documentation.
const columnsMax = 118

// ReferenceMarkdown returns the lists of all keys as Markdown: the part of docs/configuration.md between the marks. The
// lists come from the tables that Parse uses, so that the documentation matches the program.
func ReferenceMarkdown() string {
	var b strings.Builder
	section := func(title string, keys []key) {
		fmt.Fprintf(&b, "### %s\n\n", title)
		for _, k := range keys {
			writeWrapped(&b, k.referenceRow())
		}
		b.WriteString("\n")
	}
	section("LMCache's keys", lmcacheKeys)
	section("Below `extra_config.kvferry`", nodeKeys)
	section("Below `extra_config.kvferry`, for the authentication of peers", securityKeys)
	section("Below `extra_config.kvferry`, for [operators](operate.md)", operatorKeys)
	section("Below `extra_config.kvferry`, for tenants ([security](security.md#tenants))", tenantKeys)
	section("Below `extra_config.kvferry`, with `use_layerwise`", layerwiseKeys)
	section("Below `extra_config.kvferry`, where an engine's own blocks are registered", registerKeys)
	section("LMCache's keys of sharing and of its controller", shareKeys)
	section("Below `extra_config`, LMCache's keys of sharing", extraKeys)
	section("Below `extra_config.kvferry`, for sharing", shareOwnKeys)
	section("Below `extra_config.kvferry`, for Ascend NPUs", npuKeys)
	section("Below `extra_config.kvferry`, for libnixl", nixlKeys)
	section("Below `extra_config.kvferry`, for a gateway to engines of vLLM, in programs that open one", gatewayKeys)
	section("LMCache's keys of modes that this version does not support", unsupportedKeys)
	section("A directory's: LMCache's keys of its controller", controllerKeys)
	section("A directory's, below `extra_config.kvferry`", directoryKeys)
	b.WriteString("Keys that a node has as well:\n")
	writeNames(&b, slices.Concat(directoryNodeKeys, namesOf(securityKeys), namesOf(operatorKeys)))
	b.WriteString("\n")
	b.WriteString("### LMCache's keys without effect here\n\nAccepted with any value, of release " + LMCacheRelease + ":\n")
	writeNames(&b, ignoredKeys)
	b.WriteString("\nAnd of other releases and of LMCache-Ascend:\n")
	writeNames(&b, ignoredOtherKeys)
	b.WriteString("\nBelow `extra_config`, where any other key is named in a note:\n")
	writeNames(&b, ignoredExtraKeys)
	return b.String()
}

// referenceRow returns the entry of a key in the reference: the default, or "none" or "required", the roles that read
// the key, and the accepted values.
func (k key) referenceRow() string {
	def, of := "none", []string{}
	role, required := strings.CutSuffix(k.role, ", required")
	switch {
	case required:
		def = "required"
	case k.defaultText() != "":
		def = "`" + k.defaultText() + "`"
	}
	if role != "" && role != roleBoth {
		of = append(of, role)
	}
	if takes := k.kind.takes; takes != "true or false" && takes != "unset" && takes != k.defaultText() {
		of = append(of, strings.ReplaceAll(takes, "0m0s", ""))
	}
	row := fmt.Sprintf("- `%s`: %s", k.name, def)
	if len(of) > 0 {
		row += " (" + strings.Join(of, "; ") + ")"
	}
	row += ". " + strings.ToUpper(k.doc[:1]) + k.doc[1:]
	if len(k.aliases) > 0 {
		row += "; also `" + strings.Join(k.aliases, "`, `") + "`"
	}
	if k.reloads {
		row += "; read again on SIGHUP"
	}
	return row + "."
}

// writeWrapped writes an item of a list, wrapped at columns.
func writeWrapped(b *strings.Builder, item string) {
	column := 0
	for i, word := range strings.Fields(item) {
		switch n := len([]rune(word)); {
		case i == 0:
			column = n
		case column+1+n > columnsMax:
			b.WriteString("\n  ")
			column = 2 + n
		default:
			b.WriteString(" ")
			column += 1 + n
		}
		b.WriteString(word)
	}
	b.WriteString("\n")
}

// writeNames writes names as running text, wrapped at columns.
func writeNames(b *strings.Builder, names []string) {
	column := 0
	for i, name := range slices.Sorted(slices.Values(names)) {
		word := "`" + name + "`,"
		if i == len(names)-1 {
			word = "`" + name + "`."
		}
		if i > 0 && column+1+len(word) <= columnsMax {
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

func namesOf(keys []key) (names []string) {
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}
