package config

import (
	"fmt"
	"slices"
	"strings"
)

// StrayVariables returns notes on variables of an environment, in the form of os.Environ, that Parse does not read
// although their names are close to the name of a variable that Parse reads: LMCACHE_CHUNKSIZE, LM_CACHE_CHUNK_SIZE.
// LMCache's own variables and unrelated variables get no note. The notes show no values.
func StrayVariables(environ []string) []Problem {
	return nodeSchema.strayVariables(environ)
}

// StrayDirectoryVariables returns the same notes for ParseDirectory.
func StrayDirectoryVariables(environ []string) []Problem {
	return directorySchema.strayVariables(environ)
}

// lmcacheVariables are read by LMCache itself and do not correspond to keys.
var lmcacheVariables = []string{"LMCACHE_CONFIG_FILE", "LMCACHE_LOG_LEVEL", "LMCACHE_TRACK_USAGE",
	"LMCACHE_USE_EXPERIMENTAL", "LMCACHE_REMOTE_URL", "LMCACHE_LOG_FORMAT", "LMCACHE_DEBUG"}

func (s *schema) strayVariables(environ []string) (notes []Problem) {
	known := map[string]string{} // by the name without underscores
	add := func(key string) {
		variable := s.envPrefix + strings.ToUpper(key)
		known[strings.ReplaceAll(variable, "_", "")] = variable
	}
	for _, k := range s.top {
		add(k.name)
		for _, alias := range k.aliases {
			add(alias)
		}
	}
	add("extra_config")
	for _, name := range s.ignored {
		add(name)
	}
	names := make([]string, 0, len(known))
	for bare := range known {
		names = append(names, bare)
	}
	slices.Sort(names)
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		bare := strings.ReplaceAll(strings.ToUpper(name), "_", "")
		if !strings.HasPrefix(bare, "LMCACHE") || strings.HasPrefix(name, "LMCACHE_CONTROLLER_") &&
			s.envPrefix == "LMCACHE_" || slices.Contains(lmcacheVariables, name) {
			continue
		}
		meant, same := known[bare]
		if meant == name {
			continue
		}
		if !same {
			meant = known[nearestVariable(bare, names)]
		}
		if meant != "" {
			notes = append(notes, Problem{Code: Note, File: environment, Field: shortenValue(name),
				Remedy: fmt.Sprintf("nothing reads this variable; did you mean %s?", meant)})
		}
	}
	return notes
}

// nearestVariable is like nearest, for names that all have the same prefix, so that only one or two edits count as a
// slip.
func nearestVariable(bare string, names []string) string {
	const editsMax = 2
	if meant := nearestName(bare, names); meant != "" && editDistance(bare, meant) <= editsMax {
		return meant
	}
	return ""
}
