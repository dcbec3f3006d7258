/** The text of an edited secret: a row for each key, or JSON. */
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Button } from '../../../components/button.tsx'
import { CodeField } from '../../../components/code-field.tsx'
import { Field } from '../../../components/field.tsx'
import { generatePassword } from '../password.ts'
import {
  dataOfRows,
  dataText,
  type EditorRow,
  losesNumbers,
  parseData,
  type RowFault,
  rowsOf,
  type SecretData,
  type TextFault,
} from '../secret-data.ts'

export type Draft =
  | { readonly mode: 'keys'; readonly rows: readonly EditorRow[] }
  | { readonly mode: 'json'; readonly text: string }

export function draftOf(data: SecretData): Draft {
  const rows = rowsOf(data)
  return { mode: 'keys', rows: rows.length > 0 ? rows : [{ id: 0, key: '', text: '', isJson: false }] }
}

interface DraftData {
  /** Undefined if there are faults. */
  readonly data: SecretData | undefined
  readonly rowFaults: readonly RowFault[]
  readonly textFault: TextFault | undefined
}

export function draftData(draft: Draft): DraftData {
  if (draft.mode === 'json') {
    const { data, fault } = parseData(draft.text)
    return { data, rowFaults: [], textFault: fault }
  }
  const { data, faults } = dataOfRows(draft.rows)
  return { data: faults.length > 0 ? undefined : data, rowFaults: faults, textFault: undefined }
}

interface DraftFieldsProps {
  readonly draft: Draft
  readonly onChange: (draft: Draft) => void
}

export function DraftFields({ draft, onChange }: DraftFieldsProps) {
  const { data, rowFaults, textFault } = draftData(draft)
  const toggle = () => {
    if (data === undefined) return
    onChange(draft.mode === 'keys' ? { mode: 'json', text: dataText(data) } : draftOf(data))
  }
  return (
    <>
      <div class="form-actions">
        <Button onClick={toggle} pressed={draft.mode === 'json'} isDisabled={data === undefined}>
          Edit as JSON
        </Button>
        {data === undefined && <span class="hint">Correct the faults to change the format.</span>}
      </div>
      {draft.mode === 'json' ? (
        <JsonField text={draft.text} fault={textFault} onInput={(text) => onChange({ mode: 'json', text })} />
      ) : (
        <KeyRows rows={draft.rows} faults={rowFaults} onChange={(rows) => onChange({ mode: 'keys', rows })} />
      )}
    </>
  )
}

interface JsonFieldProps {
  readonly text: string
  readonly fault: TextFault | undefined
  readonly onInput: (text: string) => void
}

function JsonField({ fault, onInput, text }: JsonFieldProps) {
  const id = useId()
  return (
    <div class="json-field">
      <CodeField label="Secret as JSON" value={text} onInput={onInput} faultLine={fault?.line} describedBy={id} />
      <p id={id} class={fault ? 'error' : 'hint'} role="status">
        {fault ? `Line ${fault.line}, column ${fault.column}: ${fault.message}` : 'Valid JSON'}
      </p>
      {losesNumbers(text) && (
        <p class="error">This browser cannot keep all digits of the numbers. Write them as strings.</p>
      )}
    </div>
  )
}

interface KeyRowsProps {
  readonly rows: readonly EditorRow[]
  readonly faults: readonly RowFault[]
  readonly onChange: (rows: readonly EditorRow[]) => void
}

function KeyRows({ faults, onChange, rows }: KeyRowsProps) {
  // A row that the user adds is shown; a value that was read is hidden until requested.
  const [shown, setShown] = useState<ReadonlySet<number>>(
    () => new Set(rows.filter(({ text }) => text === '').map(({ id }) => id)),
  )
  const list = useRef<HTMLFieldSetElement>(null)
  const isAdded = useRef(false)
  const show = (id: number) => setShown(new Set([...shown, id]))
  const change = (id: number, changed: Partial<EditorRow>) =>
    onChange(rows.map((row) => (row.id === id ? { ...row, ...changed } : row)))
  const add = () => {
    const id = Math.max(-1, ...rows.map((row) => row.id)) + 1
    show(id)
    isAdded.current = true
    onChange([...rows, { id, key: '', text: '', isJson: false }])
  }
  // The name of the new key is typed next.
  useLayoutEffect(() => {
    if (isAdded.current) list.current?.querySelector<HTMLElement>('.key-row:nth-last-child(2) input')?.focus()
    isAdded.current = false
  }, [rows.length])
  return (
    <fieldset class="key-rows" ref={list}>
      <legend class="visually-hidden">Keys and values</legend>
      {rows.map((row) => (
        <KeyRow
          key={row.id}
          row={row}
          fault={faults.find(({ id }) => id === row.id)?.message}
          isShown={shown.has(row.id)}
          show={() => show(row.id)}
          onChange={(changed) => change(row.id, changed)}
          remove={() => onChange(rows.filter(({ id }) => id !== row.id))}
        />
      ))}
      <div class="form-actions">
        <Button onClick={add}>Add a key</Button>
      </div>
    </fieldset>
  )
}

interface KeyRowProps {
  readonly row: EditorRow
  readonly fault: string | undefined
  readonly isShown: boolean
  readonly show: () => void
  readonly onChange: (changed: Partial<EditorRow>) => void
  readonly remove: () => void
}

const LINES_MAX = 12

function KeyRow({ fault, isShown, onChange, remove, row: { id, isJson, key, text }, show }: KeyRowProps) {
  const name = key === '' ? `row ${id + 1}` : key
  const lines = isShown ? Math.min(LINES_MAX, text.split('\n', LINES_MAX).length) : 1
  const row = useRef<HTMLDivElement>(null)
  const isRequested = useRef(false)
  const generate = () => {
    show()
    onChange({ text: generatePassword(), isJson: false })
  }
  const edit = () => {
    isRequested.current = true
    show()
  }
  // The button that had the focus is gone: what is typed belongs to the value, not to the keys of the view.
  useLayoutEffect(() => {
    if (isShown && isRequested.current) row.current?.querySelector('textarea')?.focus()
    isRequested.current = false
  }, [isShown])
  return (
    <div class="key-row" ref={row}>
      <Field
        label={`Key ${id + 1}`}
        isLabelHidden
        placeholder="Key"
        value={key}
        onInput={(next) => onChange({ key: next })}
      />
      {isShown ? (
        <Field
          label={`Value of ${name}`}
          isLabelHidden
          placeholder="Value"
          rows={lines}
          value={text}
          onInput={(next) => onChange({ text: next })}
        />
      ) : (
        <p class="hidden-value">
          <code aria-hidden="true">••••••••</code>
          <Button onClick={edit} label={`Show and edit the value of ${name}`}>
            Show and edit
          </Button>
        </p>
      )}
      <span class="row-actions">
        <label>
          <span class="visually-hidden">Type of {name}</span>
          <select
            value={isJson ? 'json' : 'text'}
            onChange={(event) => onChange({ isJson: event.currentTarget.value === 'json' })}
          >
            <option value="text">Text</option>
            <option value="json">JSON</option>
          </select>
        </label>
        <Button onClick={generate} label={`Generate the value of ${name}`} title="32 random characters">
          Generate
        </Button>
        <Button onClick={remove} label={`Remove ${name}`}>
          ×
        </Button>
      </span>
      {fault !== undefined && (
        <p class="error" role="alert">
          {fault}
        </p>
      )}
    </div>
  )
}
