package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// manifests are the objects in deploy/kubernetes by kind and name, each decoded
// strictly into what Kubernetes has for it: a field that it does not know is an error.
// KEDA's, whose types would bring half of Kubernetes along, are maps, for keda_test.go.
func manifests(t *testing.T) map[string]any {
	t.Helper()
	objects := map[string]any{}
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var head struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`
			}
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			of := map[string]any{
				"v1/Secret": &corev1.Secret{}, "v1/ServiceAccount": &corev1.ServiceAccount{}, "batch/v1/Job": &batchv1.Job{},
				"apps/v1/Deployment": &appsv1.Deployment{}, "policy/v1/PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
				"keda.sh/v1alpha1/ScaledObject": &map[string]any{}, "keda.sh/v1alpha1/TriggerAuthentication": &map[string]any{},
			}
			o, known := of[head.APIVersion+"/"+head.Kind]
			if !known {
				t.Fatalf("%s: nothing here knows %s %s", file, head.APIVersion, head.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
				t.Errorf("%s, %s %s: %v", file, head.Kind, head.Name, err)
			}
			objects[head.Kind+" "+head.Name] = o
		}
	}
	return objects
}

// get is one object, of the type that it must have.
func get[T any](t *testing.T, objects map[string]any, name string) T {
	t.Helper()
	o, ok := objects[name].(T)
	if !ok {
		t.Fatalf("there is no %s among the manifests", name)
	}
	return o
}

// Pods keep to the strictest of Kubernetes' own standards, and their processes have
// longer to stop than a host takes.
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	objects := manifests(t)
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	host := get[*appsv1.Deployment](t, objects, "Deployment pgmill-host")
	for name, pod := range map[string]corev1.PodTemplateSpec{
		"host": host.Spec.Template, "migrate": get[*batchv1.Job](t, objects, "Job pgmill-migrate").Spec.Template,
	} {
		results := evaluator.EvaluatePod(psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)
		for _, r := range results {
			if !r.Allowed {
				t.Errorf("%s: %s: %s", name, r.ForbiddenReason, r.ForbiddenDetail)
			}
		}
		get[*corev1.ServiceAccount](t, objects, "ServiceAccount "+pod.Spec.ServiceAccountName)
		secret := get[*corev1.Secret](t, objects, "Secret "+pod.Spec.Volumes[0].Secret.SecretName)
		c := pod.Spec.Containers[0]
		file := strings.TrimPrefix(variables(c)["DATABASE_URL_FILE"], c.VolumeMounts[0].MountPath+"/")
		if secret.StringData[file] == "" {
			t.Errorf("%s reads %s, which is not in secret %s", name, file, secret.Name)
		}
	}
	if s := host.Spec.Template.Spec.TerminationGracePeriodSeconds; s == nil || *s < 20 {
		t.Errorf("a host is killed before it has drained: %v", s)
	}
	budget := get[*policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget pgmill-host")
	for _, s := range []*metav1.LabelSelector{host.Spec.Selector, budget.Spec.Selector} {
		if selector, err := metav1.LabelSelectorAsSelector(s); err != nil || !selector.Matches(labelled(host.Spec.Template.Labels)) {
			t.Errorf("%v does not select the hosts: %v", s, err)
		}
	}
}

type labelled map[string]string

func (l labelled) Has(k string) bool              { _, ok := l[k]; return ok }
func (l labelled) Get(k string) string            { return l[k] }
func (l labelled) Lookup(k string) (string, bool) { v, ok := l[k]; return v, ok }

// variables are the plain ones of a container's environment.
func variables(c corev1.Container) map[string]string {
	all := map[string]string{}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			all[v.Name] = v.Value
		}
	}
	return all
}

// The image does what the manifests tell it: the job's command migrates, the
// deployment's serves, and its probes get their answers.
func TestPodsRun(t *testing.T) {
	t.Parallel()
	objects := manifests(t)
	dsn, addr := platformtest.DSN(t, platform.Default.Modules()...), free(t)
	start := func(c corev1.Container) *container {
		env := []string{"DATABASE_URL=" + dsn} // in place of the secret's file
		for name, value := range variables(c) {
			switch name {
			case "DATABASE_URL_FILE":
				continue
			case "PGMILL_ADDR":
				value = addr // the network is not its own
			}
			env = append(env, name+"="+value)
		}
		return run(t, c.Args, env)
	}
	start(get[*batchv1.Job](t, objects, "Job pgmill-migrate").Spec.Template.Spec.Containers[0]).exits(0)
	c := get[*appsv1.Deployment](t, objects, "Deployment pgmill-host").Spec.Template.Spec.Containers[0]
	if port := variables(c)["PGMILL_ADDR"]; port != fmt.Sprintf(":%d", c.Ports[0].ContainerPort) || c.ReadinessProbe.HTTPGet.Port.String() != c.Ports[0].Name || c.LivenessProbe.HTTPGet.Port.String() != c.Ports[0].Name {
		t.Errorf("the host listens at %s, the probes ask %v and %v", port, c.ReadinessProbe.HTTPGet, c.LivenessProbe.HTTPGet)
	}
	host := start(c)
	host.becomes("http://"+addr+c.ReadinessProbe.HTTPGet.Path, "200")
	host.becomes("http://"+addr+c.LivenessProbe.HTTPGet.Path, "200")
}

// kedaModule is where KEDA's own definition of its objects is; the sum is what go.sum
// would hold. It is not in go.mod, where it would bring hundreds of modules along.
const kedaModule, kedaSum = "github.com/kedacore/keda/v2@v2.21.0", "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps="

// KEDA's objects are what its resource definitions allow, and no field more.
func TestKEDAKnowsItsObjects(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "mod", "download", "-json", kedaModule).Output()
	var module struct{ Dir, Sum, Error string }
	if jerr := json.Unmarshal(out, &module); jerr != nil || module.Error != "" {
		t.Fatalf("%s: %v, %v, %s", kedaModule, err, jerr, module.Error)
	}
	if module.Sum != kedaSum {
		t.Fatalf("%s has the sum %s, not %s", kedaModule, module.Sum, kedaSum)
	}
	objects := manifests(t)
	for name, file := range map[string]string{
		"ScaledObject pgmill-host": "keda.sh_scaledobjects.yaml", "TriggerAuthentication pgmill-reader": "keda.sh_triggerauthentications.yaml",
	} {
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPI map[string]any `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		text, err := os.ReadFile(filepath.Join(module.Dir, "config/crd/bases", file))
		if err == nil {
			err = yaml.Unmarshal(text, &crd)
		}
		if err != nil {
			t.Fatal(err)
		}
		schema := crd.Spec.Versions[0].Schema.OpenAPI
		closed(schema)
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource(file, schema); err != nil {
			t.Fatal(err)
		}
		compiled, err := compiler.Compile(file)
		if err != nil {
			t.Fatal(err)
		}
		object := *get[*map[string]any](t, objects, name)
		if err := compiled.Validate(object); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		object["spec"].(map[string]any)["nosuch"] = true
		if err := compiled.Validate(object); err == nil {
			t.Errorf("%s: a field that KEDA does not know was taken", name)
		}
	}
}

// closed forbids what a schema does not name, as the API server's strict mode does.
func closed(schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	for _, p := range properties {
		closed(p.(map[string]any))
	}
	if items, ok := schema["items"].(map[string]any); ok {
		closed(items)
	}
	if more, ok := schema["additionalProperties"].(map[string]any); ok {
		closed(more)
	} else if _, any := schema["x-kubernetes-preserve-unknown-fields"]; properties != nil && !any && len(properties) > 0 {
		schema["additionalProperties"] = false
	}
	if p, ok := properties["metadata"].(map[string]any); ok && p["type"] == "object" && p["properties"] == nil {
		delete(p, "additionalProperties") // the server's own
	}
}

// What scales hosts are numbers that a reader may ask for. Of events nothing without lag,
// and one host's worth at the most for a shard; of jobs what a host may work on now. They
// name objects that are there.
func TestHostsAreScaledByLag(t *testing.T) {
	t.Parallel()
	objects := manifests(t)
	var scaled struct {
		Spec struct {
			ScaleTargetRef  struct{ Name string }
			MinReplicaCount int
			Triggers        []struct {
				Type, MetricType  string
				Metadata          struct{ Query, TargetQueryValue string }
				AuthenticationRef struct{ Name string }
			}
		}
	}
	var auth struct {
		Spec struct {
			SecretTargetRef []struct{ Parameter, Name, Key string }
		}
	}
	for name, into := range map[string]any{"ScaledObject pgmill-host": &scaled, "TriggerAuthentication pgmill-reader": &auth} {
		text, err := json.Marshal(get[*map[string]any](t, objects, name))
		if err == nil {
			err = json.NewDecoder(bytes.NewReader(text)).Decode(into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	get[*appsv1.Deployment](t, objects, "Deployment "+scaled.Spec.ScaleTargetRef.Name)
	ref := auth.Spec.SecretTargetRef[0]
	if get[*corev1.Secret](t, objects, "Secret "+ref.Name).StringData[ref.Key] == "" || ref.Parameter != "connection" || scaled.Spec.MinReplicaCount < 1 {
		t.Errorf("the scaler has no connection, or may leave no host: %+v, %+v", ref, scaled.Spec)
	}
	targets := []string{"10000", "100"} // a host's: events that it is behind, PGMILL_MAX_JOBS
	if len(scaled.Spec.Triggers) != len(targets) {
		t.Fatalf("triggers %+v, want %d", scaled.Spec.Triggers, len(targets))
	}
	for i, trigger := range scaled.Spec.Triggers {
		get[*map[string]any](t, objects, "TriggerAuthentication "+trigger.AuthenticationRef.Name)
		if trigger.Type != "postgresql" || trigger.MetricType != "AverageValue" || trigger.Metadata.TargetQueryValue != targets[i] {
			t.Errorf("trigger %+v, want one of a host for each %s", trigger, targets[i])
		}
	}
	db := platformtest.DB(t)
	for _, step := range []struct {
		name, sql  string
		lag, depth float64
	}{
		{"nothing was ever emitted", `select 1`, 0, 0},
		{"one shard is far behind, one a little", `
			insert into pgmill.function (name, kind, module, listens) values ('a.one', 'subscription', 'a', '{test.event}');
			insert into pgmill.subscription (name, likes, order_by, shards, batch, max_attempts, on_poison, replayable, timeout)
			values ('a.one', '{test.event}', 'key', 2, 500, 5, 'hold', true, '30 s');
			insert into pgmill.step (k, base, last, after_id, cluster) select k + 1, base, 50000, after_id, cluster from pgmill.step order by k desc limit 1;
			insert into pgmill.cursor (subscription, shard, n, pos) values ('a.one', 0, 0, 0), ('a.one', 1, 0, 49999);
			insert into pgmill.shard (subscription, shard) values ('a.one', 0), ('a.one', 1)`, 10001, 0},
		{"the far one is held", `update pgmill.shard set failing_pos = 1, attempts = 5, reason = 'handler_error', failed_at = now(), held_at = now() where shard = 0`, 1, 0},
		{"jobs wait, one is not due, and one nobody can do", `
			select pgmill.declare_topics('[{"name": "job.a.build", "module": "a", "max_attempts": 3, "max_runtime_ms": 60000, "backoff_ms": 1000, "backoff_max_ms": 60000}]');
			insert into pgmill.instance (kind, id, ttl) values ('worker', 'w', '1 h');
			insert into pgmill.instance_function (instance, function) values ('w', 'job.a.build');
			select mill.submit_job(topic, options => options) from (values ('job.a.build', '{}'::jsonb), ('job.a.build', '{}'), ('job.a.build', '{}'),
				('job.a.build', '{"delay_ms": 3600000}'), ('job.a.nobody', '{}')) j(topic, options)`, 1, 3},
		{"one of them runs", `select pgmill.admit('w', '{job.a.build}', 1)`, 1, 3},
		{"the host that could do them is gone", `update pgmill.instance set last_seen = now() - interval '2 h'`, 1, 0},
	} {
		if _, err := db.Exec(t.Context(), step.sql); err != nil {
			t.Fatal(err)
		}
		for i, want := range []float64{step.lag, step.depth} {
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got float64
			if _, err = tx.Exec(t.Context(), "set local role mill_reader"); err == nil {
				err = tx.QueryRow(t.Context(), scaled.Spec.Triggers[i].Metadata.Query).Scan(&got)
			}
			if err != nil || got != want {
				t.Errorf("%s, trigger %d: %v, want %v; %v", step.name, i, got, want, err)
			}
			_ = tx.Rollback(t.Context())
		}
	}
}
