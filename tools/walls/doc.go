// Package walls has a table of the imports that each package of kvferry may have, and a test that compares the table
// with the output of go list. The package has only tests; docs/architecture.md has the same table in prose.
package walls
