-- An archive as version 3 of its tables leaves it. Never edited: files like it are out there.
PRAGMA foreign_keys = OFF;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE conversation (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            cid BLOB NOT NULL UNIQUE,
            umo BLOB NOT NULL,
            touched_seconds REAL NOT NULL);
CREATE TABLE batch (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id),
            reason TEXT NOT NULL,
            created_seconds REAL NOT NULL,
            visible INTEGER NOT NULL,
            cleared INTEGER NOT NULL DEFAULT 0,
            covered_by INTEGER REFERENCES compaction (id) ON DELETE SET NULL);
CREATE TABLE compaction (
            id INTEGER PRIMARY KEY REFERENCES batch (id) ON DELETE CASCADE,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id),
            number INTEGER,
            stage TEXT NOT NULL,
            message_count INTEGER NOT NULL,
            kept_count INTEGER NOT NULL,
            erased INTEGER NOT NULL DEFAULT 0,
            record TEXT NOT NULL,
            UNIQUE (conversation_id, number));
CREATE TABLE known (
            hash TEXT NOT NULL,
            kind TEXT NOT NULL,
            compaction_id INTEGER NOT NULL REFERENCES compaction (id) ON DELETE CASCADE,
            PRIMARY KEY (hash, kind, compaction_id)) WITHOUT ROWID;
CREATE TABLE content (
            id INTEGER PRIMARY KEY,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id),
            hash BLOB NOT NULL,
            role TEXT NOT NULL,
            indexed INTEGER NOT NULL,
            text TEXT NOT NULL,
            raw BLOB NOT NULL,
            UNIQUE (conversation_id, hash));
CREATE TABLE entry (
            batch_id INTEGER NOT NULL REFERENCES batch (id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            content_id INTEGER NOT NULL REFERENCES content (id),
            kept INTEGER NOT NULL,
            speaker TEXT,
            time_seconds REAL,
            PRIMARY KEY (batch_id, position)) WITHOUT ROWID;
CREATE TABLE packed (
            batch_id INTEGER NOT NULL REFERENCES batch (id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            count INTEGER NOT NULL,
            hash BLOB NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (batch_id, position));
CREATE TABLE doomed (
            content_id INTEGER PRIMARY KEY REFERENCES content (id) ON DELETE CASCADE);
CREATE VIRTUAL TABLE message_index USING fts5 (
            words, content = '', detail = none, columnsize = 0,
            tokenize = "ascii tokenchars '_'");
CREATE TABLE fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sample (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            time_seconds REAL NOT NULL,
            tokens INTEGER NOT NULL,
            window_tokens INTEGER);
CREATE TABLE speaker (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            message_hash TEXT NOT NULL,
            user_id TEXT NOT NULL,
            nickname TEXT NOT NULL,
            time_seconds REAL NOT NULL);
CREATE TABLE state (
            conversation_id INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            key TEXT NOT NULL,
            value BLOB NOT NULL,
            PRIMARY KEY (conversation_id, key)) WITHOUT ROWID;
CREATE INDEX batch_conversation ON batch (conversation_id, id);
CREATE INDEX batch_covered ON batch (covered_by) WHERE covered_by IS NOT NULL;
CREATE INDEX compaction_stage ON compaction (stage);
CREATE INDEX known_compaction ON known (compaction_id);
CREATE INDEX entry_content ON entry (content_id, batch_id);
CREATE TRIGGER entry_removed AFTER DELETE ON entry BEGIN
            INSERT OR IGNORE INTO doomed VALUES (old.content_id); END;
CREATE INDEX content_unindexed ON content (conversation_id, id) WHERE indexed = 0;
CREATE INDEX sample_conversation ON sample (conversation_id, id);
CREATE INDEX speaker_conversation ON speaker (conversation_id, id);
CREATE INDEX speaker_message ON speaker (conversation_id, message_hash);
INSERT INTO migrations VALUES (1, '_records');
INSERT INTO migrations VALUES (2, '_search');
INSERT INTO migrations VALUES (3, '_turns');
INSERT INTO conversation VALUES (1, X'636F6E766572736174696F6E2D31', X'776562636861743A467269656E644D6573736167653A776562636861742161737472626F742131', 1750000000.0);
INSERT INTO batch VALUES (1, 1, 'host_trim', 1750000000.0, 1, 0, 2);
INSERT INTO batch VALUES (2, 1, 'compaction', 1750000000.0, 1, 0, NULL);
INSERT INTO batch VALUES (3, 1, 'compaction', 1750000000.0, 0, 0, NULL);
INSERT INTO compaction VALUES (2, 1, 1, 'done', 3, 1, 0, '{"cached_tokens":null,"cid":"conversation-1","covers_trimmed":[1],"duration_seconds":2.5,"engine":"structured","focus":"","head_before_raw":["{\"role\": \"user\", \"content\": \"\\u65e7\"}"],"head_hash":"sha256:head","input_tokens":2900,"language":"zh","marker_hashes":["sha256:marker"],"messages_after":4,"messages_before":12,"model":"model","output_tokens":350,"prefix_json":"","provider_id":"provider","requests":1,"structured":true,"summary":"## \u76ee\u6807\n\u65e0","summary_before":"\u65e7","template":"work","tokens_after":400,"tokens_before":3000,"trigger":"manual","umo":"webchat:FriendMessage:webchat!astrbot!1"}');
INSERT INTO compaction VALUES (3, 1, 2, 'archived', 1, 0, 0, '{"cached_tokens":null,"cid":"conversation-1","covers_trimmed":[],"duration_seconds":2.5,"engine":"structured","focus":"","head_before_raw":[],"head_hash":"sha256:unsettled","input_tokens":2900,"language":"zh","marker_hashes":[],"messages_after":4,"messages_before":12,"model":"model","output_tokens":350,"prefix_json":"","provider_id":"provider","requests":1,"structured":true,"summary":"## \u76ee\u6807\n\u65e0","summary_before":null,"template":"work","tokens_after":400,"tokens_before":3000,"trigger":"manual","umo":"webchat:FriendMessage:webchat!astrbot!1"}');
INSERT INTO known VALUES ('sha256:head', 'head', 2);
INSERT INTO known VALUES ('sha256:marker', 'marker', 2);
INSERT INTO known VALUES ('sha256:unsettled', 'head', 3);
INSERT INTO content VALUES (4294967297, 1, X'0687B31BD6C6366478816BE14671C4849A1285B93554E3772BD168CE1C3BA70A', 'user', 1, '被裁掉的话', X'7B22726F6C65223A202275736572222C2022636F6E74656E74223A20225C75383861625C75383863315C75363338395C75373638345C7538626464227D');
INSERT INTO content VALUES (4294967298, 1, X'44FA8B9B1A8243031A270B1FAA58CBEC549AFB4C831B42F2F741244BA3CEBB57', 'user', 1, '下周要交预算表', X'7B22726F6C65223A202275736572222C2022636F6E74656E74223A20225C75346530625C75353436385C75383938315C75346561345C75393838345C75376239375C7538383638227D');
INSERT INTO content VALUES (4294967299, 1, X'538D9C523E6F40ACF7DB36A6420E2AB3633A40B2A88CA9B0B8F5259EA769EFC1', '_checkpoint', 1, '', X'7B22726F6C65223A20225F636865636B706F696E74222C2022636F6E74656E74223A207B226964223A202231227D7D');
INSERT INTO content VALUES (4294967300, 1, X'82BD1564758366BCA56D0C2DB2BCEF4E67A08BE64C12071C4AE383DA25DAEE7E', 'assistant', 1, 'edit src/app/main.py', X'7B22726F6C65223A2022617373697374616E74222C2022636F6E74656E74223A202265646974207372632F6170702F6D61696E2E7079227D');
INSERT INTO entry VALUES (1, 0, 4294967297, 0, NULL, NULL);
INSERT INTO entry VALUES (2, 0, 4294967298, 1, '小明(1)', 1749999999.5);
INSERT INTO entry VALUES (2, 1, 4294967299, 0, NULL, NULL);
INSERT INTO entry VALUES (2, 2, 4294967300, 0, NULL, NULL);
INSERT INTO packed VALUES (3, 0, 1, X'4D4607EB87DA2EEC6AD64F6284FE03B1EC252D11DEF196AA7E0B33E72EF3A5BB', X'5B5B35352C2031322C202275736572222C2066616C73652C206E756C6C2C206E756C6C5D5D0A7B22726F6C65223A202275736572222C2022636F6E74656E74223A20225C75366361315C75363730395C75376564335C7536373566227DE6B2A1E69C89E7BB93E69D9F');
INSERT INTO fact VALUES ('index_version', '1');
INSERT INTO sample VALUES (1, 1, 1750000000.0, 5000, 8000);
INSERT INTO speaker VALUES (1, 1, 'sha256:message', '1', '小明', 1749999999.5);
INSERT INTO state VALUES (1, 'back-off', X'7B226661696C75726573223A20317D');
INSERT INTO message_index (rowid, words) VALUES (4294967297, '掉的 的话 被裁 裁掉 话');
INSERT INTO message_index (rowid, words) VALUES (4294967298, '下周 交预 周要 算表 表 要交 预算');
INSERT INTO message_index (rowid, words) VALUES (4294967300, 'app app_main edit main main_py py src src_app');
PRAGMA user_version = 3;
