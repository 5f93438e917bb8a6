// Command rego-judge answers requests by a policy in Rego, as the agent of Kata's guests asks its
// engine: each request is one query, and the operations that an answer brings change the state
// that later queries see under `data.pstate`.
//
// It reads a JSON object with the policy and its requests, and writes a JSON list: for each request
// whether it is admitted, or why it could not be judged.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

type question struct {
	// Policy is the text of the policy.
	Policy string `json:"policy"`
	// V0 reads it as version 0 of Rego.
	V0 bool `json:"v0"`
	// Requests are asked one after the other.
	Requests []request `json:"requests"`
}

type request struct {
	Endpoint string `json:"endpoint"`
	Input    any    `json:"input"`
}

type verdict struct {
	Allowed bool   `json:"allowed"`
	Error   string `json:"error,omitempty"`
}

// answer is what a rule evaluates to when it is not a boolean.
type answer struct {
	Allowed bool        `json:"allowed"`
	Ops     []operation `json:"ops"`
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

var operations = map[string]storage.PatchOp{"add": storage.AddOp, "remove": storage.RemoveOp}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	version := ast.RegoV1
	if asked.V0 {
		version = ast.RegoV0
	}
	module, err := ast.ParseModuleWithOpts("policy.rego", asked.Policy, ast.ParserOptions{RegoVersion: version})
	if err != nil {
		return err
	}
	compiler := ast.NewCompiler().WithStrict(true)
	if compiler.Compile(map[string]*ast.Module{"policy.rego": module}); compiler.Failed() {
		return compiler.Errors
	}
	store := inmem.NewFromObject(map[string]any{"pstate": map[string]any{}})
	verdicts := make([]verdict, 0, len(asked.Requests))
	for _, each := range asked.Requests {
		allowed, err := judge(ctx, compiler, store, each)
		found := verdict{Allowed: allowed}
		if err != nil {
			found.Error = err.Error()
		}
		verdicts = append(verdicts, found)
	}
	return json.NewEncoder(os.Stdout).Encode(verdicts)
}

func judge(ctx context.Context, compiler *ast.Compiler, store storage.Store, asked request) (bool, error) {
	results, err := rego.New(
		rego.Query("data.agent_policy."+asked.Endpoint),
		rego.Compiler(compiler),
		rego.Store(store),
		rego.Input(asked.Input),
	).Eval(ctx)
	if err != nil {
		return false, err
	}
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return false, errors.New("the policy does not know this request")
	}
	value := results[0].Expressions[0].Value
	if allowed, ok := value.(bool); ok {
		return allowed, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return false, err
	}
	var found answer
	if err := json.Unmarshal(text, &found); err != nil {
		return false, err
	}
	if !found.Allowed {
		return false, nil
	}
	return true, storage.Txn(ctx, store, storage.WriteParams, func(txn storage.Transaction) error {
		for _, each := range found.Ops {
			path, ok := storage.ParsePath(each.Path)
			if op, known := operations[each.Op]; !ok || !known {
				return fmt.Errorf("operation %s of %s is not known", each.Op, each.Path)
			} else if err := store.Write(ctx, txn, op, path, each.Value); err != nil {
				return err
			}
		}
		return nil
	})
}
