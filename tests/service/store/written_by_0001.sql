BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE aliases (
	task VARCHAR(63) NOT NULL, 
	alias VARCHAR(63) NOT NULL, 
	version INTEGER NOT NULL, 
	updated_at DATETIME NOT NULL, 
	revision INTEGER NOT NULL, 
	CONSTRAINT pk_aliases PRIMARY KEY (task, alias), 
	CONSTRAINT ck_aliases_alias_length CHECK (length(alias) BETWEEN 1 AND 63), 
	CONSTRAINT fk_aliases_task_versions FOREIGN KEY(task, version) REFERENCES versions (task, version)
);
INSERT INTO "aliases" VALUES('spam','prod',2,'2026-01-02 03:04:05.678900',5);
CREATE TABLE artefacts (
	task VARCHAR(63) NOT NULL, 
	version INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_artefacts PRIMARY KEY (task, version), 
	CONSTRAINT fk_artefacts_task_versions FOREIGN KEY(task, version) REFERENCES versions (task, version) ON DELETE CASCADE
);
INSERT INTO "artefacts" VALUES('spam',1,X'6F6E65');
INSERT INTO "artefacts" VALUES('spam',2,X'74776F');
INSERT INTO "artefacts" VALUES('news',1,X'6F6E65');
CREATE TABLE changes (
	sequence INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	task VARCHAR(63) NOT NULL, 
	version INTEGER NOT NULL, 
	alias VARCHAR(63), 
	at DATETIME NOT NULL, 
	CONSTRAINT pk_changes PRIMARY KEY (sequence)
);
INSERT INTO "changes" VALUES(1,'version_added','spam',1,NULL,'2026-01-02 03:04:05.678900');
INSERT INTO "changes" VALUES(2,'version_added','spam',2,NULL,'2026-01-02 03:04:05.678900');
INSERT INTO "changes" VALUES(3,'version_added','spam',3,NULL,'2026-01-02 03:04:05.678900');
INSERT INTO "changes" VALUES(4,'version_added','news',1,NULL,'2026-01-02 03:04:05.678900');
INSERT INTO "changes" VALUES(5,'alias_set','spam',2,'prod','2026-01-02 03:04:05.678900');
INSERT INTO "changes" VALUES(6,'version_deleted','spam',3,NULL,'2026-01-02 03:04:05.678900');
CREATE TABLE marks (
	"key" VARCHAR(63) NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_marks PRIMARY KEY ("key"), 
	CONSTRAINT ck_marks_key_length CHECK (length(key) BETWEEN 1 AND 63)
);
INSERT INTO "marks" VALUES('zoo','loaded');
CREATE TABLE tasks (
	name VARCHAR(63) NOT NULL, 
	last_version INTEGER NOT NULL, 
	CONSTRAINT pk_tasks PRIMARY KEY (name), 
	CONSTRAINT ck_tasks_name_length CHECK (length(name) BETWEEN 1 AND 63), 
	CONSTRAINT ck_tasks_last_version_positive CHECK (last_version > 0)
);
INSERT INTO "tasks" VALUES('spam',3);
INSERT INTO "tasks" VALUES('news',1);
CREATE TABLE versions (
	task VARCHAR(63) NOT NULL, 
	version INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	manifest JSON NOT NULL, 
	size INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	source VARCHAR(16) NOT NULL, 
	CONSTRAINT pk_versions PRIMARY KEY (task, version), 
	CONSTRAINT ck_versions_version_positive CHECK (version > 0), 
	CONSTRAINT ck_versions_digest_length CHECK (length(digest) = 64), 
	CONSTRAINT ck_versions_size_not_negative CHECK (size >= 0), 
	CONSTRAINT fk_versions_task_tasks FOREIGN KEY(task) REFERENCES tasks (name), 
	CONSTRAINT uq_versions_task_digest UNIQUE (task, digest)
);
INSERT INTO "versions" VALUES('spam',1,'7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed','{"task": "spam", "labels": ["ham", "sp\u00e4m \ud83d\ude42"], "golden": [{"inputs": {"text": "a \"quoted\" \\ line\n\u0000"}, "probs": [0.25, 0.75]}], "training": {"epochs": 3, "best": null, "early": true}}',3,'2026-01-02 03:04:05.678900','upload');
INSERT INTO "versions" VALUES('spam',2,'3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3','{"task": "spam", "labels": ["ham", "sp\u00e4m \ud83d\ude42"], "golden": [{"inputs": {"text": "a \"quoted\" \\ line\n\u0000"}, "probs": [0.25, 0.75]}], "training": {"epochs": 3, "best": null, "early": true}}',3,'2026-01-02 03:04:05.678900','zoo');
INSERT INTO "versions" VALUES('news',1,'7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed','{"task": "spam", "labels": ["ham", "sp\u00e4m \ud83d\ude42"], "golden": [{"inputs": {"text": "a \"quoted\" \\ line\n\u0000"}, "probs": [0.25, 0.75]}], "training": {"epochs": 3, "best": null, "early": true}}',3,'2026-01-02 03:04:05.678900','training');
COMMIT;
