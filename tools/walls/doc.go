// Package walls holds the walls between kvferry's packages: a table of who may import whom, and a
// test that compares it with what go list says. It is a test and nothing else; docs/architecture.md
// has the same table in prose.
package walls
