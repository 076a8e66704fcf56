// Package docs checks that the files, tests, identifiers, links, rules and states that documents and comments name
// exist. The package has only tests.
package docs
