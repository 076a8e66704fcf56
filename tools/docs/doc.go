// Package docs checks that what documents and comments name exists: files, tests, identifiers, links, rules and states.
// It has tests only.
package docs
